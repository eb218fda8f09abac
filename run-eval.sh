#!/usr/bin/env bash
# Serve a model and evaluate it on RULER-HQA files; stops only what it started.
#
#   MODEL_PATH=HF_FOLDER DATA_ROOT=... LENGTH="50 200" SAVE_FILE=name bash run-eval.sh
#   CONVERT=1 SINGLE_ITER=iter_0000099 SAVE_PATH=... HF_CKPT=... bash run-eval.sh
#
# Results: RESULTS/SAVE_FILE (default results/<model's name>). A second run continues.
source "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"
default_recipe
setup_python

if [ "${CONVERT:-0}" = 1 ]; then
    [ -n "${SAVE_PATH:-}" ] && [ -n "${SINGLE_ITER:-}" ] || die "CONVERT=1 needs SAVE_PATH and SINGLE_ITER=iter_<number>"
    MODEL_PATH="${MODEL_PATH:-$SAVE_PATH/hf/$SINGLE_ITER}"
    if [ -e "$MODEL_PATH/config.json" ] && [ "${FORCE:-0}" != 1 ]; then
        say "$MODEL_PATH is there already"
    else
        run env OUTPUT="$MODEL_PATH" bash "$PACK_DIR/convert-to-hf.sh"
    fi
fi
[ -n "${MODEL_PATH:-}" ] || die "set MODEL_PATH to a Hugging Face folder or id, or CONVERT=1 with SAVE_PATH, HF_CKPT and SINGLE_ITER"
[ -n "${DATA_ROOT:-}" ] || die "set DATA_ROOT to the folder of eval_<length>.json"
SAVE_FILE="${SAVE_FILE:-$(basename "$MODEL_PATH")}"
output="${RESULTS:-$PACK_DIR/results}/$SAVE_FILE"
python=("$VENV/bin/python")

if [ "$DRY_RUN" = 1 ]; then
    run "${python[@]}" -m mem_agent.host.serve --model "$MODEL_PATH" --url-file "$output/url.PID"
    run "${python[@]}" -m mem_agent.eval_ruler_hqa --model "$MODEL_PATH" --url URL --output "$output"
    exit 0
fi
mkdir -p "$output"
"${python[@]}" -m mem_agent.eval_ruler_hqa --model "$MODEL_PATH" --output "$output" --check || exit 1

say "serving $MODEL_PATH"
url="$output/url.$$"
SAVE_PATH="$output" "${python[@]}" -m mem_agent.host.serve --model "$MODEL_PATH" --url-file "$url" >/dev/null &
server=$!
stop() { kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
trap stop EXIT
trap 'exit 130' INT TERM
until [ -s "$url" ]; do
    kill -0 "$server" 2>/dev/null || die "the server for $MODEL_PATH did not start; see $output/logs"
    sleep 0.5
done
attend "${python[@]}" -m mem_agent.eval_ruler_hqa --model "$MODEL_PATH" --url "$(cat "$url")" --output "$output"
