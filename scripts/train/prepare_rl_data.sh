#!/usr/bin/env bash
# The training data of a round: shards in OUTPUT_DIR/rl_train_data/VERSION, a test file, files to evaluate with.
#
#   RECIPE=recipes/memsifter/locomo.yaml HF_CKPT=... bash scripts/train/prepare_rl_data.sh
#   PRIMARY_DATA_DIR=data/results/my-ranker VERSION=v1121-0 HF_CKPT=... bash scripts/train/prepare_rl_data.sh
#
# RECIPE is the YAML of data sets here; DATA_RECIPE is another name of it, beside a RECIPE of settings. Questions are
# chosen by the rankings in PRIMARY_DATA_DIR where a data set has some, else at random from FALLBACK_DATA_DIR
# (data/results/EMBEDDING_MODEL_NAME). OUTPUT_DIR (data), VERSION (vMMDD-0).
# TOKENIZER (HF_CKPT) counts tokens, MAX_PROMPT_TOKENS of a prompt; SIFTER_PROMPTS, SEED. DRY_RUN=1 prints the command.
# shellcheck source=_common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../_common.sh"
case "${RECIPE:-}" in *.yaml | *.yml) DATA_RECIPE="${DATA_RECIPE:-$RECIPE}"; unset RECIPE ;; esac
setup_python
if [ -n "${RECIPE:-}" ]; then load_recipe "$RECIPE"; fi

tokenizer="${TOKENIZER:-${HF_CKPT:-}}"
[ -n "$tokenizer" ] || die "set HF_CKPT (or TOKENIZER) to the model that is trained: its tokenizer counts"
command=("$VENV/bin/python" -P -m mem_agent prepare-rl-data
    --recipe "${DATA_RECIPE:-$PACK_DIR/recipes/memsifter/mix-v1.yaml}"
    --output-dir "${OUTPUT_DIR:-$PACK_DIR/data}" --tokenizer "$tokenizer"
    --fallback-data-dir "${FALLBACK_DATA_DIR:-$PACK_DIR/data/results/${EMBEDDING_MODEL_NAME:-bge-m3}}")
[ -z "${PRIMARY_DATA_DIR:-}" ] || command+=(--primary-data-dir "$PRIMARY_DATA_DIR")
[ -z "${VERSION:-}" ] || command+=(--version "$VERSION")
[ -z "${MAX_PROMPT_TOKENS:-}" ] || command+=(--max-prompt-tokens "$MAX_PROMPT_TOKENS")
[ -z "${SEED:-}" ] || command+=(--seed "$SEED")
[ -z "${SIFTER_PROMPTS:-}" ] || command+=(--prompts "$SIFTER_PROMPTS")
run "${command[@]}"
