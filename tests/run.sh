#!/usr/bin/env bash
# Every check of the pack, once, from nothing: environment, linters, type checks, all tests. Arguments go to pytest;
# --require-hosts fails where a checkout of a host or of published code is missing.
# Tests with real servers come last. All wait now and then, so there is one more worker than cores.
# shellcheck source=_common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../_common.sh"
setup_python dev
cd "$PACK_DIR"
bin="$VENV/bin"
"$bin/python" -m ruff check .
# mypy knows a package by its folder's name, whatever this checkout is called.
link="$(mktemp -d)"
trap 'rm -r "$link"' EXIT
ln -s "$PACK_DIR" "$link/mem_agent"
(cd "$link" && "$bin/python" -m mypy --config-file mem_agent/pyproject.toml mem_agent)
(cd "$link" && PYTHONPATH="$link" "$bin/python" -c 'from importlinter.cli import lint_imports_command as lint; lint()' \
    --no-cache --config mem_agent/pyproject.toml)
"$bin/shellcheck" --shell=bash --external-sources --source-path="$PACK_DIR" ./*.sh rehearsal/*.sh recipes/*.sh tests/run.sh .ci/run

failed=0
test_part() {
    local code=0
    "$bin/python" -m pytest --numprocesses "$workers" --dist loadfile "$@" || code=$?
    if [ "$code" != 0 ] && [ "$code" != 5 ]; then failed="$code"; fi # 5: none of this part was asked for
}
room="$(awk '/^MemAvailable/ {print 1 + int($2 / 4194304)}' /proc/meminfo)" # 4 GiB for a test and its servers
workers="$(printf '%s\n' "$(($(nproc) + 1))" "$room" 8 | sort -n | head -n 1)"
mapfile -t with_servers < <(grep -rl --include='test_*.py' 'mark\.servers' tests) # each worker imports all it is given
test_part tests -m "not servers" "$@"
test_part "${with_servers[@]}" --no-loadscope-reorder -m servers "$@" # conftest.py says which is first
exit "$failed"
