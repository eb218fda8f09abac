#!/usr/bin/env bash
# Stage 2: a generative ranker names the best sessions of each history. Serves it here, or asks BASE_URL.
#
#   MODEL_PATH=/models/my-ranker bash scripts/infer/session_ranking.sh
#   BASE_URL=https://HOST/v1 MODEL_PATH=org/my-ranker bash scripts/infer/session_ranking.sh     key: API_KEY
#
# MODEL_PATH: Hugging Face folder or id; MODEL_NAME (its last part): the folder of the results in OUTPUT_DIR, and
# without MODEL_PATH the model in models/MODEL_NAME. Reads stage 1's files of EMBEDDING_MODEL_NAME. RANK_TOP_K,
# TEMPERATURE (0.6), MEM_MAX_QUESTION and MEM_MAX_FINAL (tokens of prompt and reply), ENGINE_MAX_LEN, NUM_ENGINES,
# DATASETS, SPLITS, RAY_ADDRESS, RUNTIME_ENV. Arguments go to `mem-agent session-ranking`. A second run continues.
# shellcheck source=scripts/infer/_stages.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/_stages.sh"
MODEL_PATH="${MODEL_PATH:-${MODEL_NAME:+$PACK_DIR/models/$MODEL_NAME}}"
[ -n "$MODEL_PATH" ] || die "set MODEL_PATH to the ranker, a Hugging Face folder or id"
rank=("${python[@]}" -m mem_agent session-ranking --model "$MODEL_PATH" "$@")
folder="$OUTPUT_DIR/${MODEL_NAME:-$(basename -- "$MODEL_PATH")}"

if [ -n "${BASE_URL:-}" ]; then
    run_and_forward_signals "${rank[@]}"
    exit
fi
if [ "$DRY_RUN" != 1 ]; then
    checked="$("${rank[@]}" --check)" || exit 1
    read -r ENGINE_MAX_LEN MEM_MAX_QUESTION MEM_MAX_FINAL missing <<<"$checked"
    export ENGINE_MAX_LEN MEM_MAX_QUESTION MEM_MAX_FINAL
    if [ "$missing" = 0 ]; then
        say "$folder has all rankings"
        run_and_forward_signals "${rank[@]}" --url http://127.0.0.1:9 # asks nobody
        exit
    fi
    say "serving $MODEL_PATH with ${NUM_ENGINES:-1} engines of $ENGINE_MAX_LEN tokens; logs in $folder/logs"
fi
serve_while "$folder" "$MODEL_PATH" "${rank[@]}"
