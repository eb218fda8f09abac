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

setup_python
HOSTS_VENV="${HOSTS_VENV:-$VENV-hosts}"
install_once "$HOSTS_VENV" hosts "$VENV with its own .pth files, $(fingerprint cpu rehearsal)" install_hosts
if [ "$HOST" = slime ] && [ -z "${SGLANG_PYTHON:-}" ]; then
    SGLANG_VENV="${SGLANG_VENV:-$VENV-sglang}"
    install_once "$SGLANG_VENV" sglang "$(fingerprint sglang)" install_beside "$SGLANG_VENV" sglang
    export SGLANG_PYTHON="$SGLANG_VENV/bin/python"
fi
export HOST MEM_AGENT_ENGINE_PYTHON="$VENV/bin/python"
[ "$DRY_RUN" != 1 ] || [ -x "$HOSTS_VENV/bin/python" ] || exit 0
[ "$DRY_RUN" != 1 ] || set -- --dry-run "$@"
exec "$HOSTS_VENV/bin/python" "$PACK_DIR" rehearse "$@"
