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

# Run a host's job in small on this machine.
rehearse() {
    case "${HOST:-}" in slime | vime) ;; *) die "REHEARSE=1 rehearses a host's job: set HOST to slime or vime" ;; esac
    if [ -z "${HF_CKPT:-}" ] && [ -z "${TRAIN_DATA:-}" ]; then RECIPE="${RECIPE:-$PACK_DIR/recipes/pocket.env}"; fi
    setup_rehearsal
    if [ -n "${RECIPE:-}" ]; then load_recipe "$RECIPE"; fi
    export HOST SAVE_PATH="${SAVE_PATH:-$PACK_DIR/runs/train}" MEM_AGENT_ENGINE_PYTHON="$VENV/bin/python"
    if [ -n "${POCKET_DATA:-}" ]; then make_pocket_data; fi
    MEGATRON_ROOT='' make_importable # the rehearsal makes a patched copy of its own
    if [ "$DRY_RUN" = 1 ] && [ ! -x "$HOSTS_VENV/bin/python" ]; then exit; fi
    local dry=()
    [ "$DRY_RUN" != 1 ] || dry=(--dry-run)
    DRY_RUN=0 run_and_forward_signals "$HOSTS_VENV/bin/python" -P -m mem_agent rehearse "${dry[@]}"
}

# Train in slime or vime, and convert the newest checkpoint.
train_in_host() {
    local python="${PYTHON:-python3}" newest
    if [ -n "${RECIPE:-}" ]; then load_recipe "$RECIPE" "$python"; fi
    export SAVE_PATH="${SAVE_PATH:-$PACK_DIR/runs/train}"
    if [ "${CONVERT:-1}" = 1 ]; then converting_python; else make_importable; fi
    if [ "$DRY_RUN" = 1 ]; then "$python" -P -m mem_agent launch --dry-run; return; fi
    run_and_forward_signals "$python" -P -m mem_agent launch
    [ "${CONVERT:-1}" = 1 ] || return 0
    newest="$(tracked "$SAVE_PATH")" || exit 1
    if [ -e "$SAVE_PATH/hf/$newest/config.json" ]; then
        say "there: $SAVE_PATH/hf/$newest"
    else
        env -u AVERAGE -u OUTPUT SINGLE_ITER="$newest" bash "$PACK_DIR/convert-to-hf.sh"
    fi
}

if [ "${REHEARSE:-0}" = 1 ]; then rehearse; exit; fi
find_host
if [ "$HOST" != local ]; then train_in_host; exit; fi

if [ -z "${HF_CKPT:-}" ] && [ -z "${TRAIN_DATA:-}" ]; then
    if has_gpu; then die "set HF_CKPT and TRAIN_DATA (or RECIPE=recipes/pocket.env for the small demonstration)"; fi
    RECIPE="${RECIPE:-$PACK_DIR/recipes/pocket.env}"
fi
setup_python
default_recipe
export SAVE_PATH="${SAVE_PATH:-$PACK_DIR/runs/train}"
python=("$VENV/bin/python" -P)
if [ -n "${POCKET_DATA:-}" ]; then make_pocket_data; fi

if [ "${EVAL:-1}" = 1 ] && [ -n "${DATA_ROOT:-}" ]; then
    finish=--evaluate
    say "training in $SAVE_PATH; its engines evaluate $HF_CKPT before and $SAVE_PATH/hf/iter_* after, into $SAVE_PATH/eval"
else
    finish=--convert
    say "training in $SAVE_PATH; no evaluation of before and after (DATA_ROOT is not set, or EVAL=0)"
fi
code=0
run_and_forward_signals "${python[@]}" -m mem_agent train "$finish" || code=$?

# What a run that ended before has left undone, on engines of its own.
evaluate() { # NAME MODEL
    # 3: some questions failed; they count as wrong.
    run_and_forward_signals env -u BASE_URL MODEL_PATH="$2" SAVE_FILE="$1" RESULTS="$SAVE_PATH/eval" CONVERT=0 \
        bash "$PACK_DIR/run-eval.sh" || [ $? = 3 ]
}
[ "$code" = 0 ] || [ "$code" = 4 ] || exit "$code"
[ "$DRY_RUN" != 1 ] || exit 0
last="$(tracked "$SAVE_PATH")" || exit 1
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
