#!/usr/bin/env bash
# Every check of the pack, from nothing: environment, linters, type checks, all tests. Arguments go to pytest.
# Tests with real servers come last. They wait a third of their time, so there is one more of them at once than cores.
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
"$bin/shellcheck" --shell=bash --external-sources --source-path="$PACK_DIR" ./*.sh scripts/*/*.sh tests/run.sh .ci/run

failed=0
test_part() {
    local code=0
    "$bin/python" -m pytest tests "$@" || code=$?
    if [ "$code" != 0 ] && [ "$code" != 5 ]; then failed="$code"; fi # 5: none of this part was asked for
}
least() { printf '%s\n' "$@" | sort -n | head -n 1; }
cores="$(nproc)"
room="$(awk '/^MemAvailable/ {print 1 + int($2 / 4194304)}' /proc/meminfo)" # 4 GiB for a test and its servers
test_part -m "not servers" --numprocesses "$(least "$cores" 8)" --dist loadfile "$@"
test_part -m servers --numprocesses "$(least "$((cores + 1))" "$room" 6)" --dist loadfile "$@"
exit "$failed"
