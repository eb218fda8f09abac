#!/usr/bin/env bash
# Checkpoints of a training run as Hugging Face folders: MODEL_DIR/EXP_NAME-step-20 and so on.
#
#   HF_CKPT=... CKPT_STEPS="20 30 40" bash scripts/train/collect_verl_ckpt.sh
#
# A step is a rollout trained: step 20 is CKPTS_DIR/iter_0000019, for iterations count from 0. PROJECT_NAME, EXP_NAME,
# CKPTS_DIR (ckpt/PROJECT_NAME/EXP_NAME), MODEL_DIR (models/PROJECT_NAME). What is there stays; FORCE=1 converts again.
# Checkpoints are those of this pack, slime or vime; the script's name is MemSifter's. DRY_RUN=1 prints the commands.
# shellcheck source=_common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../_common.sh"
project="${PROJECT_NAME:-MemSifter}" experiment="${EXP_NAME:-ep1-MemSifter-Qwen3-4B-Task-Reward}"
checkpoints="${CKPTS_DIR:-$PACK_DIR/ckpt/$project/$experiment}" models="${MODEL_DIR:-$PACK_DIR/models/$project}"
[ -n "${HF_CKPT:=${MODEL_PATH:-}}" ] || die "set HF_CKPT to the Hugging Face folder that training started from"

for step in ${CKPT_STEPS:-20 30 40}; do
    [[ "$step" =~ ^0*[1-9][0-9]*$ ]] || die "CKPT_STEPS='${CKPT_STEPS:-}': '$step' is no step; they count from 1"
done
for step in ${CKPT_STEPS:-20 30 40}; do
    output="$models/$experiment-step-$step"
    if [ -e "$output/config.json" ] && [ "${FORCE:-0}" != 1 ]; then say "there: $output"; continue; fi
    run env -u AVERAGE SAVE_PATH="$checkpoints" HF_CKPT="$HF_CKPT" SINGLE_ITER="$((10#$step - 1))" OUTPUT="$output" \
        bash "$PACK_DIR/convert-to-hf.sh"
done
