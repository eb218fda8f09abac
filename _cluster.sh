# shellcheck shell=bash
# Sourced by _common.sh: which host trains, and training in slime or vime with the Python of their environment.

# Set and export HOST, and HOST_ROOT unless the pack's own host trains.
find_host() {
    local found
    python_is_there
    found="$("${PYTHON:-python3}" "$PACK_DIR/launch/find_host.py" "$PACK_DIR")" || exit 1
    found="${found##*$'\n'}" # wrappers of Python may print before it does
    HOST="${found%% *}"
    [ "$HOST" = local ] || HOST_ROOT="${found#* }"
    export HOST HOST_ROOT="${HOST_ROOT:-}"
}

python_is_there() {
    "${PYTHON:-python3}" -c '' >/dev/null 2>&1 || die "PYTHON='${PYTHON:-python3}' does not run; set PYTHON to the one to use"
}

# Make this pack importable as mem_agent by $PYTHON, whatever its folder is called.
make_importable() {
    MEM_AGENT_IMPORT="$(mktemp -d)"
    export MEM_AGENT_IMPORT PYTHONPATH="$MEM_AGENT_IMPORT${MEGATRON_ROOT:+:$MEGATRON_ROOT}${PYTHONPATH:+:$PYTHONPATH}"
    ln -s "$PACK_DIR" "$MEM_AGENT_IMPORT/mem_agent"
    trap 'rm -r "$MEM_AGENT_IMPORT"' EXIT
}

# Set `python` to one that can convert checkpoints: the pack's own, or in a host's environment the host's.
converting_python() {
    python="$VENV/bin/python"
    if [ "$HOST" = local ]; then setup_python; return; fi
    python="${PYTHON:-python3}"
    make_importable
    [ "$DRY_RUN" = 1 ] || "$python" -c 'import mem_agent.checkpoints.convert' 2>/dev/null ||
        die "$python cannot convert checkpoints: it needs megatron-core and mbridge (pip install --no-deps mbridge==0.15.1), or CONVERT=0"
}

# Train, convert the newest checkpoint, and end the script.
train_in_host() {
    local python="${PYTHON:-python3}"
    if [ -n "${RECIPE:-}" ]; then load_recipe "$RECIPE"; fi
    export SAVE_PATH="${SAVE_PATH:-$PACK_DIR/runs/train}"
    if [ "${CONVERT:-1}" = 1 ]; then converting_python; else make_importable; fi
    if [ "$DRY_RUN" = 1 ]; then
        "$python" -m mem_agent launch --dry-run
        exit
    fi
    run_and_forward_signals "$python" -m mem_agent launch
    if [ "${CONVERT:-1}" = 1 ]; then
        newest="iter_$(printf '%07d' "$(cat "$SAVE_PATH/latest_checkpointed_iteration.txt")")"
        if [ -e "$SAVE_PATH/hf/$newest/config.json" ]; then
            say "there: $SAVE_PATH/hf/$newest"
        else
            env -u AVERAGE -u OUTPUT SINGLE_ITER="$newest" bash "$PACK_DIR/convert-to-hf.sh"
        fi
    fi
    exit
}
