#!/usr/bin/env bash
# Stage 1: how similar the sessions of each history are to its question. Nothing is embedded twice.
#
#   EMBEDDING_MODEL_NAME=bge-m3 DATASETS="locomo zh4o" SPLITS="train test" bash scripts/infer/session_embedding.sh
#
# DATA_DIR (data) has {data set}/{split}.parquet, OUTPUT_DIR (DATA_DIR/results) gets
# EMBEDDING_MODEL_NAME/{data set}_{split}_embed.parquet, EMBED_STORE_PATH (DATA_DIR/embedding_store) the vectors.
# RAY_ADDRESS: work on Ray Data there. RUNTIME_ENV: a YAML whose env_vars are set where you have not set them.
# Arguments go to `mem-agent session-embedding`. A second run continues. DRY_RUN=1 prints the command.
# shellcheck source=scripts/infer/_stages.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/_stages.sh"
run_and_forward_signals "${python[@]}" -m mem_agent session-embedding ${RAY_ADDRESS:+--ray "$RAY_ADDRESS"} "$@"
