#!/usr/bin/env bash
# Train a memory agent: evaluate, train, convert the last checkpoint, evaluate again, print before against after.
#
#   bash run-train.sh                                        pocket profile, a laptop without a GPU
#   HF_CKPT=... TRAIN_DATA=... DATA_ROOT=... bash run-train.sh
#   HOST=slime HOST_ROOT=... RECIPE=recipes/qwen3-4b.env HF_CKPT=... TRAIN_DATA=... bash run-train.sh
#   REHEARSE=1 HOST=slime HOST_ROOT=... MEGATRON_ROOT=... bash run-train.sh [--rollouts 2] [--ranks 2]    that job in
#                                                            small, by the host's own train.py on a CPU
#
# Every setting is an environment variable; `mem-agent config` lists them. EVAL=0 leaves evaluation out, DRY_RUN=1 prints
# what would run. PUSH_TO_HUB=ORG/NAME uploads the trained model with its card.
source "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

# The data of the pocket profile, from RECIPE's POCKET_DATA, and the frozen chat model that its task asks, if it does.
make_pocket_data() {
    [ -n "${POCKET_DATA:-}" ] || return 0
    run "$VENV/bin/python" -P -m mem_agent pocket --output "$POCKET_DATA" --seed "${SEED:-1}" --task "${POCKET_TASK:-look-up}"
    [ -n "${POCKET_CHAT_PORT:-}" ] || return 0
    local chat=("$VENV/bin/python" -P -m mem_agent.pocket.frozen_chat --port "$POCKET_CHAT_PORT" --with-parent) ready
    if [ "$DRY_RUN" = 1 ]; then run "${chat[@]}"; return; fi
    exec {pocket_chat}< <(exec "${chat[@]}") # it ends by itself when this script has ended, however that ends
    read -r ready <&"$pocket_chat" || die "no chat model at POCKET_CHAT_PORT=$POCKET_CHAT_PORT; the line above says why"
    say "$ready"
}

# SAVE_PATH as set by the user or the recipe, else runs/train.
default_save_path() { export SAVE_PATH="${SAVE_PATH:-$PACK_DIR/runs/train}"; }

# Train in slime or vime, and convert the newest checkpoint.
train_in_host() {
    local python="${PYTHON:-python3}" dry=()
    if [ -n "${RECIPE:-}" ]; then load_recipe "$RECIPE" "$python"; fi
    default_save_path
    make_importable
    if [ "${CONVERT:-1}" = 1 ]; then need_conversion "$python"; fi
    [ "$DRY_RUN" != 1 ] || dry=(--dry-run)
    DRY_RUN=0 run_and_forward_signals "$python" -P -m mem_agent launch "${dry[@]}"
    if [ "${CONVERT:-1}" = 1 ]; then env -u AVERAGE -u OUTPUT -u SINGLE_ITER bash "$PACK_DIR/convert-to-hf.sh"; fi
}

pocket="$PACK_DIR/recipes/pocket.env"
if [ "${REHEARSE:-0}" = 1 ]; then
    if [ -z "${HF_CKPT:-}${TRAIN_DATA:-}" ]; then RECIPE="${RECIPE:-$pocket}"; fi
    # shellcheck source=rehearsal/run.sh
    source "$PACK_DIR/rehearsal/run.sh"
    exit
fi
find_host
if [ "$HOST" != local ]; then train_in_host; exit; fi

if [ -z "${HF_CKPT:-}${TRAIN_DATA:-}" ]; then
    if has_gpu; then die "set HF_CKPT and TRAIN_DATA (or RECIPE=recipes/pocket.env for the small demonstration)"; fi
    RECIPE="${RECIPE:-$pocket}"
fi
setup_python
default_recipe
default_save_path
make_pocket_data
finish=--convert
if [ "${EVAL:-1}" = 1 ] && [ -n "${DATA_ROOT:-}" ]; then
    finish=--evaluate
    say "training in $SAVE_PATH; its engines evaluate $HF_CKPT before and $SAVE_PATH/hf/iter_* after, into $SAVE_PATH/eval"
else
    say "training in $SAVE_PATH; no evaluation of before and after (DATA_ROOT is not set, or EVAL=0)"
fi
code=0
run_and_forward_signals "$VENV/bin/python" -P -m mem_agent train "$finish" || code=$?
[ "$code" = 0 ] || [ "$code" = 4 ] || exit "$code"
[ "$DRY_RUN" != 1 ] || exit 0

read -r last <"$SAVE_PATH/latest_checkpointed_iteration.txt" || true # without a newline at its end
last="iter_$(printf '%07d' "$((10#$last))")"
model="$SAVE_PATH/hf/$last" before="$SAVE_PATH/eval/before" after="$SAVE_PATH/eval/after-$last"
evaluate() { # NAME MODEL; 3: some questions failed, which count as wrong
    run_and_forward_signals env -u BASE_URL MODEL_PATH="$2" SAVE_FILE="$1" RESULTS="$SAVE_PATH/eval" CONVERT=0 \
        bash "$PACK_DIR/run-eval.sh" || [ $? = 3 ]
}
if [ "$code" = 4 ]; then # the run had ended before, and may have left the rest undone
    env -u AVERAGE -u OUTPUT SINGLE_ITER="$last" bash "$PACK_DIR/convert-to-hf.sh"
    if [ "$finish" = --evaluate ]; then evaluate before "$HF_CKPT" && evaluate "after-$last" "$model"; fi
fi
if [ -d "$before" ] && [ -d "$after" ]; then
    run "$VENV/bin/python" -P -m mem_agent eval --table "$before" "$after"
    [ ! -e "$model/README.md" ] || # a model that was converted before cards were written has none
        run "$VENV/bin/python" -P -m mem_agent card "$model" --results "$before" "$after" \
            ${PUSH_TO_HUB:+--push-to-hub "$PUSH_TO_HUB"}
fi
