#!/usr/bin/env bash
# Train a ranker by the answers that it leads to, with the settings of MemSifter's DAPO run.
#
#   MODEL_PATH=... TRAIN_FILE=data/rl_train_data/v1121-0 ANSWER_URL=... bash scripts/train/qwen3_4b_task_reward.sh
#
# MODEL_PATH is HF_CKPT, CKPTS_DIR is SAVE_PATH, NNODES is NUM_NODES; TRAIN_FILE is TRAIN_DATA: a folder of shards, a
# pattern, one file, or MemSifter's list ["a/train_0.parquet", ...]. TEST_FILE is EVAL_DATA in slime and vime; the
# embedded host evaluates the eval_*.json beside it, before and after.
# The other settings are those of RECIPE (recipes/memsifter-qwen3-4b.env). DRY_RUN=1 prints what would run.
# shellcheck source=_common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../_common.sh"

# Of a list of shards, the pattern that means the same: all of one folder.
shards_of() {
    local files folder there
    IFS=, read -ra files <<<"$(sed -E "s/^\[ *//; s/ *\]$//; s/ *, */,/g; s/[\"']//g" <<<"$1")"
    folder="$(dirname -- "${files[0]}")"
    there="$(find "$folder" -maxdepth 1 -name 'train_*.parquet' 2>/dev/null | wc -l)"
    [ "${#files[@]}" = "$there" ] ||
        die "TRAIN_FILE names ${#files[@]} shards, $folder has $there train_*.parquet; name the folder, or one file"
    printf '%s' "$folder"
}

# The names of the files to evaluate with.
tests_in() {
    find "$1" -maxdepth 1 -name 'eval_*.json' -printf '%f\n' | sed -E 's/^eval_|\.json$//g' | sort | paste -sd ' '
}

case "${TRAIN_FILE:-}" in '['*) TRAIN_FILE="$(shards_of "$TRAIN_FILE")" || exit 1 ;; esac
export TRAIN_DATA="${TRAIN_DATA:-${TRAIN_FILE:-}}" HF_CKPT="${HF_CKPT:-${MODEL_PATH:-}}"
run="${PROJECT_NAME:-MemSifter}/${EXP_NAME:-ep1-MemSifter-Qwen3-4B-Task-Reward}"
export SAVE_PATH="${SAVE_PATH:-${CKPTS_DIR:-$PACK_DIR/ckpt/$run}}"
[ -n "$TRAIN_DATA" ] || die "set TRAIN_FILE to the data of scripts/train/prepare_rl_data.sh"
[ -z "${NNODES:-}" ] || export NUM_NODES="${NUM_NODES:-$NNODES}"
if [ -n "${TEST_FILE:-}" ]; then
    find_host
    if [ "$HOST" = local ]; then
        export DATA_ROOT="${DATA_ROOT:-$(dirname -- "$TEST_FILE")}"
        export LENGTH="${LENGTH:-$(tests_in "$DATA_ROOT")}"
    else
        export EVAL_DATA="${EVAL_DATA:-$TEST_FILE}" EVAL_INTERVAL="${EVAL_INTERVAL:-5}"
    fi
fi
export RECIPE="${RECIPE:-$PACK_DIR/recipes/memsifter-qwen3-4b.env}"
exec bash "$PACK_DIR/run-train.sh"
