#!/usr/bin/env bash
# Say which eval_<length>.json files are under DATA_ROOT; with --download fetch the missing ones.
#
#   DATA_ROOT=... LENGTHS="50 200 800" bash prepare-eval-data.sh [--download]
#
# The files come from the dataset EVAL_DATASET (default BytedTsinghua-SIA/hotpotqa); HF_ENDPOINT is honoured.
source "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"
[ -n "${DATA_ROOT:-}" ] || die "set DATA_ROOT to the folder for eval_<length>.json"
lengths="${LENGTHS:-50 100 200 400 800 1600 3200 6400}"
dataset="${EVAL_DATASET:-BytedTsinghua-SIA/hotpotqa}"
case "${1:-}" in '' | --download) ;; *) die "unknown option $1; allowed: --download" ;; esac

missing=()
for length in $lengths; do
    file="$DATA_ROOT/eval_$length.json"
    if [ -s "$file" ]; then say "there:   $file"; else say "missing: $file"; missing+=("eval_$length.json"); fi
done
[ "${#missing[@]}" -gt 0 ] || exit 0
[ "${1:-}" = --download ] || die "${#missing[@]} of the files are missing; --download fetches them"
setup_python
mkdir -p "$DATA_ROOT"
run "$VENV/bin/hf" download --repo-type dataset "$dataset" "${missing[@]}" --local-dir "$DATA_ROOT"
