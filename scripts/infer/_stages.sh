# shellcheck shell=bash
# Sourced by the scripts of MemSifter's stages: their folders, and a server for as long as one command runs.
# shellcheck source=_common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../_common.sh"
if [ -n "${RECIPE:-}" ]; then load_recipe "$RECIPE"; fi
setup_python

export DATA_DIR="${DATA_DIR:-$PACK_DIR/data}"
export OUTPUT_DIR="${OUTPUT_DIR:-$DATA_DIR/results}" EMBED_STORE_PATH="${EMBED_STORE_PATH:-$DATA_DIR/embedding_store}"
python=(setpriv --pdeathsig TERM "$VENV/bin/python" -P) # ends with this script, even where that is killed

# serve_while FOLDER MODEL COMMAND...: the command, with the address of a server for MODEL that ends with it. Logs are
# in FOLDER/logs.
serve_while() {
    local folder="$1" serve=("${python[@]}" -m mem_agent serve-engines --model "$2") code=0
    shift 2
    if [ "$DRY_RUN" = 1 ]; then
        run "${serve[@]}" --url-file "$folder/url.PID"
        run "$@" --url URL
        return
    fi
    local url="$folder/url.$$"
    mkdir -p -- "$folder"
    rm -f -- "$url" # of another process that had this number
    SAVE_PATH="$folder" AGENT=chat EVAL_MODE=recurrent "${serve[@]}" --url-file "$url" >/dev/null &
    server=$!
    trap stop_server EXIT
    trap 'exit 130' INT TERM
    until [ -s "$url" ]; do
        kill -0 "$server" 2>/dev/null || die "the server for ${serve[-1]} did not start; see $folder/logs"
        sleep 0.5
    done
    run_and_forward_signals "$@" --url "$(cat -- "$url")" || code=$?
    stop_server
    trap - EXIT
    return "$code"
}

stop_server() { kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
