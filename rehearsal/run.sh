# shellcheck shell=bash
# How run-train.sh ends with REHEARSE=1: a host's job in small on this machine. The environment of the hosts lies over the
# pack's own and has numpy 1 and Ray; SGLang, which slime asks, has its own.
case "${HOST:-}" in slime | vime) ;; *) die "REHEARSE=1 rehearses a host's job: set HOST to slime or vime" ;; esac

install_hosts() {
    say "installing requirements/rehearsal.txt into $HOSTS_VENV, over $VENV (once, a minute)"
    "$VENV/bin/python" -P -m venv "$HOSTS_VENV" &&
        printf 'import site; site.addsitedir("%s")\n' "$(site_packages "$VENV")" \
            >"$(site_packages "$HOSTS_VENV")/mem_agent_pack.pth" &&
        VENV="$HOSTS_VENV" install --no-deps -r "$PACK_DIR/requirements/rehearsal.txt"
}

# Megatron-LM as the host's image builds it, in MEGATRON_ROOT: at the commit that its Dockerfile names, with the host's
# patches. The copy is made once, nobody's clone is touched, and a tree without git is taken as it is.
prepare_megatron() {
    local commit copy draft patches=("$HOST_ROOT"/docker/patch/latest/megatron*.patch)
    [ -d "${MEGATRON_ROOT:-}" ] || die "set MEGATRON_ROOT to a git clone of https://github.com/NVIDIA/Megatron-LM"
    [ -e "$MEGATRON_ROOT/.git" ] || return 0
    commit="$(sed -n 's/^ARG MEGATRON_COMMIT=//p' "$HOST_ROOT/docker/Dockerfile")"
    copy="$HOSTS_VENV/sources/Megatron-LM-${commit:0:8}-$(cat "${patches[@]}" | sha256sum | cut -c1-8)"
    if [ ! -d "$copy" ]; then
        mkdir -p -- "$HOSTS_VENV/sources"
        draft="$(mktemp -d "$copy.XXXXXX")"
        if ! { git clone --quiet --shared --no-checkout "$MEGATRON_ROOT" "$draft" &&
            git -C "$draft" checkout --quiet "$commit" -- megatron &&
            git -C "$draft" apply --include='megatron/*' "${patches[@]}"; }; then
            die "set MEGATRON_ROOT to a clone that has the commit of $HOST, and HOST_ROOT to a full checkout"
        fi
        mv -T -- "$draft" "$copy"
    fi
    export MEGATRON_ROOT="$copy"
}

setup_python
HOSTS_VENV="${HOSTS_VENV:-$VENV-hosts}"
install_once "$HOSTS_VENV" hosts "$VENV with its own .pth files, $(fingerprint cpu rehearsal)" install_hosts
if [ "$HOST" = slime ] && [ -z "${SGLANG_PYTHON:-}" ]; then
    SGLANG_VENV="${SGLANG_VENV:-$VENV-sglang}"
    install_once "$SGLANG_VENV" sglang "$(fingerprint sglang)" install_beside "$SGLANG_VENV" sglang
    export SGLANG_PYTHON="$SGLANG_VENV/bin/python"
fi
export MEM_AGENT_ENGINE_PYTHON="$VENV/bin/python"
[ "$DRY_RUN" != 1 ] || [ -x "$HOSTS_VENV/bin/python" ] || exit 0
[ "$DRY_RUN" != 1 ] || set -- --dry-run "$@"
MEGATRON_ROOT='' find_host # which would put the clone on Python's path
prepare_megatron
exec "$HOSTS_VENV/bin/python" "$PACK_DIR" rehearse "$@"
