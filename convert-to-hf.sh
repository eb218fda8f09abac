#!/usr/bin/env bash
# Convert a torch_dist checkpoint (of this pack, slime or vime) to a Hugging Face folder; needs no GPU.
#
#   SAVE_PATH=... HF_CKPT=... SINGLE_ITER=iter_0000099 bash convert-to-hf.sh     -> SAVE_PATH/hf/iter_0000099
#
# Without SINGLE_ITER the newest. OUTPUT names another folder; FORCE=1 replaces an existing one.
source "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"
[ -n "${SAVE_PATH:-}" ] || die "set SAVE_PATH to the folder with iter_* checkpoints"
[ -n "${HF_CKPT:-}" ] || die "set HF_CKPT to the Hugging Face folder that training started from"
setup_python

if [ -z "${SINGLE_ITER:-}" ]; then
    tracker="$SAVE_PATH/latest_checkpointed_iteration.txt"
    [ -s "$tracker" ] || die "$tracker: no checkpoint has been written there"
    newest="$(cat "$tracker")"
    case "$newest" in release) SINGLE_ITER=release ;; *) SINGLE_ITER="iter_$(printf '%07d' "$newest")" ;; esac
fi
force=()
[ "${FORCE:-0}" != 1 ] || force=(--force)
run "$VENV/bin/python" -m mem_agent.host.convert --input "$SAVE_PATH/$SINGLE_ITER" --hf "$HF_CKPT" \
    --output "${OUTPUT:-$SAVE_PATH/hf/$SINGLE_ITER}" "${force[@]}"
