#!/usr/bin/env bash
# Serve a model and evaluate it on RULER-HQA or RULER files; stops only what it started.
#
#   MODEL_PATH=HF_FOLDER_OR_ID DATA_ROOT=... LENGTH="50 200 800" SAVE_FILE=name NUM_ENGINES=2 bash run-eval.sh
#   CONVERT=1 SINGLE_ITER=iter_0000099 SAVE_PATH=... HF_CKPT=... bash run-eval.sh
#   BASE_URL=https://HOST/v1 MODEL_PATH=... DATA_ROOT=... bash run-eval.sh    a running server; key in OPENAI_API_KEY
#   EVAL_MODE=direct|rag, EVAL_SAMPLES=4: the other settings are in `mem-agent config`
#
# A model that this pack converted is asked as it was trained: settings that are not set come from its mem_agent.yaml.
# Results: RESULTS/SAVE_FILE (default results/<model's name>). A second run continues.
source "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"
setup_python
if [ -n "${RECIPE:-}" ]; then load_recipe "$RECIPE"; fi

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
# The recipe of this machine would stand above the model's own settings, and says nothing about another's server.
if [ ! -f "$MODEL_PATH/mem_agent.yaml" ] && [ -z "${BASE_URL:-}" ]; then default_recipe; fi
SAVE_FILE="${SAVE_FILE:-$(basename -- "$MODEL_PATH")}"
output="${RESULTS:-$PACK_DIR/results}/$SAVE_FILE"
python=(setpriv --pdeathsig TERM "$VENV/bin/python" -P) # ends with this script, even where that is killed
evaluate=("${python[@]}" -m mem_agent eval --model "$MODEL_PATH" --output "$output")
serve=("${python[@]}" -m mem_agent serve-engines --model "$MODEL_PATH")

if [ -n "${BASE_URL:-}" ]; then
    run_and_forward_signals "${evaluate[@]}"
    exit
fi
if [ "$DRY_RUN" = 1 ]; then
    run "${serve[@]}" --url-file "$output/url.PID"
    run "${evaluate[@]}" --url URL
    exit
fi
checked="$("${evaluate[@]}" --check)" || exit 1
read -r ENGINE_MAX_LEN missing <<<"${checked##*$'\n'}" # before it stands whatever a library has printed
export ENGINE_MAX_LEN
if [ "$missing" = 0 ]; then
    say "$output has all answers"
    "${python[@]}" -m mem_agent eval --table "$output"
    exit
fi

say "serving $MODEL_PATH with ${NUM_ENGINES:-1} engines of $ENGINE_MAX_LEN tokens; logs in $output/logs"
url="$output/url.$$"
rm -f -- "$url" # of another process that had this number
SAVE_PATH="$output" "${serve[@]}" --url-file "$url" >/dev/null &
server=$!
stop() { kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
trap stop EXIT
trap 'exit 130' INT TERM
until [ -s "$url" ]; do
    kill -0 "$server" 2>/dev/null || die "the server for $MODEL_PATH did not start; see $output/logs"
    sleep 0.5
done
run_and_forward_signals "${evaluate[@]}" --url "$(cat -- "$url")"
