#!/usr/bin/env bash
# Train a memory agent: evaluate, train, convert the last checkpoint, evaluate again, print before against after.
#
#   bash run-train.sh                                        pocket profile, with or without a GPU
#   HF_CKPT=... TRAIN_DATA=... DATA_ROOT=... bash run-train.sh
#   HOST=slime HOST_ROOT=... RECIPE=recipes/qwen3-4b.env HF_CKPT=... TRAIN_DATA=... bash run-train.sh
#   REHEARSE=1 HOST=slime HOST_ROOT=... MEGATRON_ROOT=... bash run-train.sh [--rollouts 2] [--ranks 2]    that job in
#                                                            small, by the host's own train.py on a CPU
#
# Every setting is an environment variable; `mem-agent config` lists them. EVAL=0 skips evaluation, CONVERT=0 conversion;
# DRY_RUN=1 prints the commands. PUSH_TO_HUB=ORG/NAME uploads the trained model with its card. The rest is
# training/train.py, for slime and vime launch/launch.py.
source "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"

pocket_unless_told() {
    if [ -z "${HF_CKPT:-}${TRAIN_DATA:-}" ]; then export RECIPE="${RECIPE:-$PACK_DIR/recipes/pocket.env}"; fi
}

if [ "${REHEARSE:-0}" = 1 ]; then
    pocket_unless_told
    # shellcheck source=rehearsal/run.sh
    source "$PACK_DIR/rehearsal/run.sh"
fi
find_host
options=()
if [ "${CONVERT:-1}" = 1 ]; then options+=(--convert); fi
if [ -n "${PUSH_TO_HUB:-}" ]; then options+=(--push-to-hub "$PUSH_TO_HUB"); fi
if [ "${PRIVATE:-0}" = 1 ]; then options+=(--private); fi
if [ "$HOST" != local ]; then
    if [ "$DRY_RUN" = 1 ]; then options+=(--dry-run); fi
    exec "${PYTHON:-python3}" "$PACK_DIR" launch "${options[@]}"
fi
if [ "${EVAL:-1}" = 1 ]; then options+=(--evaluate); fi
pocket_unless_told
if [ "$DRY_RUN" = 1 ] && [ ! -x "$VENV/bin/python" ]; then # what can be said before anything is installed
    missing=0
    for name in HF_CKPT TRAIN_DATA DATA_ROOT TORCH_DIST MEM_PROMPTS; do
        case "$name=${!name:-}" in *= | *[[*]* | HF_CKPT=[!./]*) continue ;; esac # none, several files, a hub id
        [ -e "${!name}" ] || { say "$name=${!name}: no such file or folder" && missing=1; }
    done
    [ "$missing" = 0 ] || exit 1
fi
setup_python
default_recipe
if [ "$DRY_RUN" = 1 ]; then
    print_command "$VENV/bin/python" -P -m mem_agent train "${options[@]}"
    options+=(--dry-run)
fi
exec "$VENV/bin/python" -P -m mem_agent train "${options[@]}"
