#!/usr/bin/env bash
# Stage 3: a chat model answers from the best sessions. Any OpenAI-compatible endpoint, or a model that is served here.
#
#   BASE_URL=https://HOST/v1 API_KEY=... MODEL_NAME=gpt-x METHODS="bge-m3 my-ranker" bash scripts/infer/chat_infer.sh
#   CHAT_MODEL_PATH=/models/chat METHODS="bge-m3 bm25 full my-ranker" bash scripts/infer/chat_infer.sh
#
# METHODS: whose order of sessions (EMBEDDING_MODEL_NAME); MODEL_NAME: the chat model, at BASE_URL and in OUTPUT_DIR.
# MAX_OUTPUT_TOKEN (4096), TEMPERATURE (0.6), TOP_K (10), MAX_INPUT_TOKENS (8192) and FULL_INPUT_TOKENS (131072) of
# sessions, CHAT_CONCURRENCY, DATASETS, SPLITS, RUNTIME_ENV. The key comes from API_KEY or OPENAI_API_KEY, is sent in a
# header and told nowhere. Arguments go to `mem-agent chat-infer`. A second run continues, and asks for what failed.
# shellcheck source=scripts/infer/_stages.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/_stages.sh"
chat=("${python[@]}" -m mem_agent chat-infer "$@")

if [ -n "${BASE_URL:-}" ]; then
    run_and_forward_signals "${chat[@]}"
    exit
fi
model="${CHAT_MODEL_PATH:-}"
[ -n "$model" ] || die "set BASE_URL to a chat endpoint, or CHAT_MODEL_PATH to a model that is served here"
chat+=(--model "$model")
folder="$OUTPUT_DIR/${MODEL_NAME:-$(basename -- "$model")}"
if [ "$DRY_RUN" != 1 ]; then
    checked="$("${chat[@]}" --check)" || exit 1
    read -r ENGINE_MAX_LEN missing <<<"${checked##*$'\n'}" # before it stands whatever a library has printed
    if [ "$missing" = 0 ]; then
        say "$folder has all answers"
        exit
    fi
    export ENGINE_MAX_LEN MEM_MAX_QUESTION=1 MEM_MAX_FINAL=1 # what the server is asked is not the agent's to say
    say "serving $model with ${NUM_ENGINES:-1} engines of $ENGINE_MAX_LEN tokens; logs in $folder/logs"
fi
serve_while "$folder" "$model" "${chat[@]}"
