# shellcheck shell=bash
# Sourced by the scripts of MemSifter's stages: their folders, and a server for as long as one command runs.
# shellcheck source=_common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../_common.sh"
if [ -n "${RECIPE:-}" ]; then load_recipe "$RECIPE"; fi
setup_python

# Variables of a Ray runtime environment (env_vars in the YAML file RUNTIME_ENV) that the user has not set.
load_runtime_env() {
    [ -n "${RUNTIME_ENV:-}" ] || return 0
    [ -f "$RUNTIME_ENV" ] || die "RUNTIME_ENV='$RUNTIME_ENV': no such file"
    [ -x "$VENV/bin/python" ] || return 0 # DRY_RUN=1 before the installation
    local variable variables found
    found="$(mktemp)"
    "$VENV/bin/python" -P -m mem_agent.sifter.stages.runtime_env "$RUNTIME_ENV" >"$found" || { rm -- "$found"; exit 1; }
    mapfile -d '' -t variables <"$found"
    rm -- "$found"
    for variable in "${variables[@]}"; do
        if may_set "RUNTIME_ENV='$RUNTIME_ENV'" "${variable%%=*}" "${variable#*=}"; then export "${variable?}"; fi
    done
}
load_runtime_env

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
