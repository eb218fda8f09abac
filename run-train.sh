#!/usr/bin/env bash
# Train a memory agent: evaluate, train, convert the last checkpoint, evaluate again, print before against after.
# The engines start once, for all of it.
#
#   bash run-train.sh                                        pocket profile, a laptop without a GPU
#   HF_CKPT=... TRAIN_DATA=... DATA_ROOT=... bash run-train.sh
#   HOST=slime HOST_ROOT=... RECIPE=recipes/qwen3-4b.env HF_CKPT=... TRAIN_DATA=... bash run-train.sh
#   REHEARSE=1 HOST=slime HOST_ROOT=... bash run-train.sh    that job in small, by the host's own train.py on a CPU
#
# Every setting is an environment variable; `mem-agent config` lists them. EVAL=0 leaves evaluation out, DRY_RUN=1 prints
# what would run. PUSH_TO_HUB=ORG/NAME uploads the trained model with its card.
source "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

if [ "${REHEARSE:-0}" = 1 ]; then rehearse; fi
find_host
if [ "$HOST" != local ]; then train_in_host; fi

if [ -z "${HF_CKPT:-}" ] && [ -z "${TRAIN_DATA:-}" ]; then
    if has_gpu; then die "set HF_CKPT and TRAIN_DATA (or RECIPE=recipes/pocket.env for the small demonstration)"; fi
    RECIPE="${RECIPE:-$PACK_DIR/recipes/pocket.env}"
fi
default_recipe
export SAVE_PATH="${SAVE_PATH:-$PACK_DIR/runs/train}"

setup_python
python=("$VENV/bin/python" -P)
if [ -n "${POCKET_DATA:-}" ]; then
    make_pocket_data
fi

if [ "${EVAL:-1}" = 1 ] && [ -n "${DATA_ROOT:-}" ]; then
    finish=--evaluate
    say "training in $SAVE_PATH; its engines evaluate $HF_CKPT before and $SAVE_PATH/hf/iter_* after, into $SAVE_PATH/eval"
else
    finish=--convert
    say "training in $SAVE_PATH; no evaluation of before and after (DATA_ROOT is not set, or EVAL=0)"
fi
code=0
run_and_forward_signals "${python[@]}" -m mem_agent train "$finish" || code=$?

# Set `last` to the name of the checkpoint that the trainer has ended with: what the tracker names, as a folder that was
# copied has none the newest.
find_last() {
    if [ -s "$SAVE_PATH/latest_checkpointed_iteration.txt" ]; then
        last="$(tracked "$SAVE_PATH")" || exit 1
    else
        last="$(cd -- "$SAVE_PATH" && printf '%s\n' iter_* | grep -xE 'iter_[0-9]{7,18}' | sort -V | tail -n 1)"
    fi
}

# What a run that ended before has left undone, on engines of its own.
evaluate() { # NAME MODEL
    # 3: some questions failed; they count as wrong.
    run_and_forward_signals env -u BASE_URL MODEL_PATH="$2" SAVE_FILE="$1" RESULTS="$SAVE_PATH/eval" CONVERT=0 \
        bash "$PACK_DIR/run-eval.sh" || [ $? = 3 ]
}
[ "$code" = 0 ] || [ "$code" = 4 ] || exit "$code"
[ "$DRY_RUN" != 1 ] || exit 0
find_last
if [ "$code" = 4 ]; then
    [ -e "$SAVE_PATH/hf/$last/config.json" ] ||
        env -u OUTPUT -u AVERAGE SINGLE_ITER="$last" bash "$PACK_DIR/convert-to-hf.sh"
    if [ "$finish" = --evaluate ]; then
        evaluate before "$HF_CKPT"
        evaluate "after-$last" "$SAVE_PATH/hf/$last"
    fi
fi
if [ -d "$SAVE_PATH/eval/before" ] && [ -d "$SAVE_PATH/eval/after-$last" ]; then
    results=("$SAVE_PATH/eval/before" "$SAVE_PATH/eval/after-$last")
    run "${python[@]}" -m mem_agent eval --table "${results[@]}"
    if [ -e "$SAVE_PATH/hf/$last/README.md" ]; then # a model that was converted before cards were written has none
        run "${python[@]}" -m mem_agent card "$SAVE_PATH/hf/$last" --results "${results[@]}" \
            ${PUSH_TO_HUB:+--push-to-hub "$PUSH_TO_HUB"}
    fi
fi
