#!/usr/bin/env bash
# All three stages, one after the other, and a table of every method. A second run continues where this one was ended.
#
#   DATA_DIR=data DATASETS=locomo MODEL_PATH=/models/my-ranker \
#       BASE_URL=https://HOST/v1 API_KEY=... CHAT_MODEL_NAME=gpt-x bash scripts/infer/memsifter.sh
#   ... MODEL_PATH=/models/my-ranker CHAT_MODEL_PATH=/models/chat bash scripts/infer/memsifter.sh
#
# MODEL_PATH and MODEL_NAME are the ranker's. BASE_URL and API_KEY are the chat model's; a running server of the ranker
# is RANK_BASE_URL, with RANK_API_KEY. RANK_ENGINE_MAX_LEN, CHAT_ENGINE_MAX_LEN: contexts of models served here.
# METHODS (EMBEDDING_MODEL_NAME, bm25, full and the ranker). The other settings are those of the three scripts.
# shellcheck source=scripts/infer/_stages.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/_stages.sh"
here="$PACK_DIR/scripts/infer"
MODEL_PATH="${MODEL_PATH:-${MODEL_NAME:+$PACK_DIR/models/$MODEL_NAME}}"
[ -n "$MODEL_PATH" ] || die "set MODEL_PATH to the ranker, a Hugging Face folder or id"
[ -n "${BASE_URL:-}${CHAT_MODEL_PATH:-}" ] ||
    die "set BASE_URL to a chat endpoint, or CHAT_MODEL_PATH to a model that is served here"
ranker="${MODEL_NAME:-$(basename -- "$MODEL_PATH")}"
embedder="${EMBEDDING_MODEL_NAME:-bge-m3}"

# Run a stage; rows without a reply (exit code 3) do not keep the next stage from what there is.
stage() {
    local code=0
    run_and_forward_signals "$@" || code=$?
    [ "$code" = 0 ] || [ "$code" = 3 ] || exit "$code"
    if [ "$code" = 3 ]; then incomplete=3; fi
}
incomplete=0
if [ "$DRY_RUN" = 1 ]; then
    run() { "$@"; } # the stages print their own commands
fi

stage bash "$here/session_embedding.sh" --tokenizer "$MODEL_PATH" --keep-counts # of new files; stage 2 counts its prompts
API_KEY="${RANK_API_KEY:-}" OPENAI_API_KEY='' BASE_URL="${RANK_BASE_URL:-}" MODEL_PATH="$MODEL_PATH" \
    MODEL_NAME="$ranker" ENGINE_MAX_LEN="${RANK_ENGINE_MAX_LEN:-${ENGINE_MAX_LEN:-}}" \
    stage bash "$here/session_ranking.sh"
MODEL_NAME="${CHAT_MODEL_NAME:-}" METHODS="${METHODS:-$embedder bm25 full $ranker}" \
    ENGINE_MAX_LEN="${CHAT_ENGINE_MAX_LEN:-${ENGINE_MAX_LEN:-}}" stage bash "$here/chat_infer.sh"
if [ "$DRY_RUN" = 1 ]; then
    printf '%q ' "${python[@]}" -m mem_agent sifter-table "$OUTPUT_DIR"
    echo
else
    run_and_forward_signals "${python[@]}" -m mem_agent sifter-table "$OUTPUT_DIR"
fi
exit "$incomplete"
