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
setup_python
# The recipe of this machine would stand above a trained model's own settings, and says nothing about another's server.
asked="${MODEL_PATH:-}"
if [ "${CONVERT:-0}" = 1 ]; then asked="${SAVE_PATH:-}"; fi
if [ ! -f "$asked/mem_agent.yaml" ] && [ -z "${BASE_URL:-}" ]; then default_recipe; fi
exec "$VENV/bin/python" -P -m mem_agent run eval
