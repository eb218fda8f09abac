#!/usr/bin/env bash
# Convert torch_dist checkpoints (of this pack, slime or vime) to Hugging Face folders; needs no GPU.
#
#   SAVE_PATH=... HF_CKPT=... SINGLE_ITER=iter_0000099 bash convert-to-hf.sh     -> SAVE_PATH/hf/iter_0000099
#   SAVE_PATH=... HF_CKPT=... AVERAGE="20 30 40" bash convert-to-hf.sh           -> SAVE_PATH/hf/average_20_30_40
#
# SINGLE_ITER is a folder's name or number, or all: every iter_*. Without it, the newest. AVERAGE writes the mean of several.
# A folder that is there already is kept; FORCE=1 replaces it. OUTPUT names another folder for the one result.
# PUSH_TO_HUB=ORG/NAME uploads that with its card; PRIVATE=1 makes its repository private.
source "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"
[ -n "${SAVE_PATH:-}" ] || die "set SAVE_PATH to the folder with iter_* checkpoints"
[ -n "${HF_CKPT:-}" ] || die "set HF_CKPT to the Hugging Face folder that training started from"
[ -z "${AVERAGE:-}" ] || [ -z "${SINGLE_ITER:-}" ] || die "set AVERAGE or SINGLE_ITER, not both"
read -ra numbers <<<"${AVERAGE:-${SINGLE_ITER:-}}"
options=(--input "$SAVE_PATH" --hf "$HF_CKPT")
if [ -n "${AVERAGE:-}" ]; then
    options+=(--average "${numbers[@]}")
elif [ "${SINGLE_ITER:-}" = all ]; then
    options+=(--all)
elif [ -n "${SINGLE_ITER:-}" ]; then
    options+=(--iteration "${numbers[@]}")
fi
if [ -n "${OUTPUT:-}" ]; then options+=(--output "$OUTPUT"); fi
if [ "${FORCE:-0}" = 1 ]; then options+=(--force); fi
if [ -n "${PUSH_TO_HUB:-}" ]; then options+=(--push-to-hub "$PUSH_TO_HUB"); fi
if [ "${PRIVATE:-0}" = 1 ]; then options+=(--private); fi

find_host
if [ "$HOST" != local ]; then exec_or_print "${PYTHON:-python3}" "$PACK_DIR" convert "${options[@]}"; fi
setup_python
exec_or_print "$VENV/bin/python" -P -m mem_agent convert "${options[@]}"
