#!/usr/bin/env bash
# Evaluate a model on RULER-HQA or RULER files, on engines that are started for it and stopped behind it.
#
#   MODEL_PATH=HF_FOLDER_OR_ID DATA_ROOT=... LENGTH="50 200 800" SAVE_FILE=name NUM_ENGINES=2 bash run-eval.sh
#   CONVERT=1 SINGLE_ITER=iter_0000099 SAVE_PATH=... HF_CKPT=... bash run-eval.sh
#   BASE_URL=https://HOST/v1 MODEL_PATH=... DATA_ROOT=... bash run-eval.sh    a running server; key in OPENAI_API_KEY
#   EVAL_MODE=direct|rag, EVAL_SAMPLES=4: the other settings are in `mem-agent config`
#
# A model that this pack converted is asked as it was trained: settings that are not set come from its mem_agent.yaml.
# Results: RESULTS/SAVE_FILE (default results/<model's name>). A second run continues. DRY_RUN=1 prints the commands.
source "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"
if [ "${CONVERT:-0}" = 1 ]; then
    [ -n "${SAVE_PATH:-}" ] && [ -n "${SINGLE_ITER:-}" ] || die "CONVERT=1 needs SAVE_PATH and SINGLE_ITER=iter_<number>"
    MODEL_PATH="${MODEL_PATH:-$SAVE_PATH/hf/$SINGLE_ITER}"
    HOST=local OUTPUT="$MODEL_PATH" bash "$PACK_DIR/convert-to-hf.sh"
fi
[ -n "${MODEL_PATH:-}" ] || die "set MODEL_PATH to a Hugging Face folder or id, or CONVERT=1 with SAVE_PATH, HF_CKPT and SINGLE_ITER"
setup_python
# The recipe of this machine would stand above a trained model's own settings, and says nothing about another's server.
if [ ! -f "$MODEL_PATH/mem_agent.yaml" ] && [ -z "${BASE_URL:-}" ]; then default_recipe; fi
output="${RESULTS:-results}/${SAVE_FILE:-$(basename -- "$MODEL_PATH")}"
options=(--model "$MODEL_PATH" --output "$output")
if [ "$DRY_RUN" = 1 ]; then
    print_command "$VENV/bin/python" -P -m mem_agent eval "${options[@]}"
    if [ "${CONVERT:-0}" = 1 ] && [ ! -d "$MODEL_PATH" ]; then exit; fi # to be converted first
    options+=(--dry-run)
fi
exec "$VENV/bin/python" -P -m mem_agent eval "${options[@]}"
