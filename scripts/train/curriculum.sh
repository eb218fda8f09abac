#!/usr/bin/env bash
# All of MemSifter's training: ROUNDS rounds of prepare, train, convert, validate, average, rank again. Killed at any
# moment, the same command goes on.
#
#   HF_CKPT=... DATA_RECIPE=recipes/memsifter/locomo.yaml ANSWER_URL=... bash scripts/train/curriculum.sh
#
# CURRICULUM_DIR (runs/memsifter) has the rounds; OUTPUT_DIR (data/results) has stage 1's files, in the folder
# EMBEDDING_MODEL_NAME, and gets the rankings. AVERAGE_BEST (3) checkpoints of a round are averaged, of
# KEEP_CHECKPOINTS (10). WARM_UP_ROUNDS (1) train by the ranking alone, the others by REWARD (answer_utility).
# PRIMARY_DATA_DIR: rankings for the first round. MAX_PROMPT_TOKENS, SIFTER_PROMPTS, SEED: as prepare_rl_data.sh
# (a prompt has MEM_MAX_QUESTION tokens, and at most 133120, unless said).
# RECIPE: the settings of training (recipes/memsifter-qwen3-4b.env). DRY_RUN=1 prints every command.
# shellcheck source=_common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../_common.sh"
case "${RECIPE:-}" in *.yaml | *.yml) DATA_RECIPE="${DATA_RECIPE:-$RECIPE}"; unset RECIPE ;; esac
export HF_CKPT="${HF_CKPT:-${MODEL_PATH:-}}" KEEP_CHECKPOINTS="${KEEP_CHECKPOINTS:-10}"
setup_python
load_recipe "${RECIPE:-$PACK_DIR/recipes/memsifter-qwen3-4b.env}"
[ -n "$HF_CKPT" ] || die "set HF_CKPT to the Hugging Face folder or id that the first round starts from"
if [ -n "${POCKET_DATA:-}" ]; then make_pocket_data; fi

command=("$VENV/bin/python" -P -m mem_agent curriculum --work "${CURRICULUM_DIR:-$PACK_DIR/runs/memsifter}"
    --model "$HF_CKPT" --data-recipe "${DATA_RECIPE:-$PACK_DIR/recipes/memsifter/mix-v1.yaml}"
    --results "${OUTPUT_DIR:-$PACK_DIR/data/results}" --embedding "${EMBEDDING_MODEL_NAME:-bge-m3}"
    --rounds "${ROUNDS:-3}" --average "${AVERAGE_BEST:-3}" --warm-up "${WARM_UP_ROUNDS:-1}"
    --reward "${REWARD:-answer_utility}")
[ -z "${PRIMARY_DATA_DIR:-}" ] || command+=(--primary-data-dir "$PRIMARY_DATA_DIR")
[ -z "${MAX_PROMPT_TOKENS:-}" ] || command+=(--max-prompt-tokens "$MAX_PROMPT_TOKENS")
[ -z "${SIFTER_PROMPTS:-}" ] || command+=(--prompts "$SIFTER_PROMPTS")
[ -z "${SEED:-}" ] || command+=(--seed "$SEED")
[ "$DRY_RUN" != 1 ] || command+=(--dry-run)
DRY_RUN=0 run_and_forward_signals "${command[@]}"
