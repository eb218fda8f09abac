#!/usr/bin/env bash
# The mean of several checkpoints: MODEL_DIR/MODEL_NAME-step-20, -step-30, ... into MODEL_DIR/MODEL_NAME-merged.
#
#   MODEL_NAME=my-ranker CKPT_STEPS="20 30 40" bash scripts/train/merge_ckpts.sh
#
# PROJECT_NAME, MODEL_DIR (models/PROJECT_NAME); FORCE=1 replaces what is there, DRY_RUN=1 prints the command. The mean
# is taken in float32 and written in the number format of the checkpoints (mem-agent average).
# shellcheck source=_common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../_common.sh"
models="${MODEL_DIR:-$PACK_DIR/models/${PROJECT_NAME:-MemSifter}}" name="${MODEL_NAME:-MemSifter-Qwen3-4B-Task-Reward}"
inputs=()
for step in ${CKPT_STEPS:-20 30 40}; do inputs+=("$models/$name-step-$step"); done
force=()
[ "${FORCE:-0}" != 1 ] || force=(--force)
setup_python
run "$VENV/bin/python" -P -m mem_agent average --inputs "${inputs[@]}" --output "$models/$name-merged" "${force[@]}"
