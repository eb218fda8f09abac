#!/usr/bin/env bash
# Say which eval_<length>.json files are under DATA_ROOT; fetch the published ones, or make them from raw data sets.
#
#   DATA_ROOT=... LENGTHS="50 200 800" bash prepare-eval-data.sh [--download | --synthesize FILE... [OPTION...]]
#
# --download fetches from the dataset EVAL_DATASET (default BytedTsinghua-SIA/hotpotqa) at EVAL_REVISION by `hf
# download`, which continues where it was interrupted; without LENGTHS all it has. HF_ENDPOINT is honoured.
# --synthesize reads HotpotQA, 2WikiMultiHopQA, MuSiQue or SQuAD files; the variables QUESTIONS (128), SEED (42) and
# CLOSED_BOOK (a verdict of mem-agent closed-book) shape the result, and so do the options of mem-agent synthesize:
#   --published-questions EVAL_FILE  the questions of a published file of MemAgent, in place of QUESTIONS
#   --published-layout               documents placed as the published generators do
#   --distant-evidence               as well ReMemR1's subsets: the evidence far apart, the last fact first
# It verifies what is there against DATA_ROOT/manifest.json, and continues where an earlier run was interrupted.
source "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"
[ -n "${DATA_ROOT:-}" ] || die "set DATA_ROOT to the folder for eval_<length>.json"
lengths="${LENGTHS:-50 100 200 400 800 1600 3200 6400 12800 25600}"
dataset="${EVAL_DATASET:-BytedTsinghua-SIA/hotpotqa}"
action="${1:-}"
case "$action" in
    '' | --download) [ "$#" -le 1 ] || die "unknown option $2; $action takes none" ;;
    --synthesize) [ "$#" -ge 2 ] || die "--synthesize needs raw files, such as hotpot_dev_distractor_v1.json" ;;
    *) die "unknown option $action; allowed: --download, --synthesize FILE..." ;;
esac

missing=0
for length in $lengths; do
    [[ "$length" =~ ^[1-9][0-9]*$ ]] || die "LENGTHS: '$length' is not a number of documents, such as 50 200"
    file="$DATA_ROOT/eval_$length.json"
    if [ -s "$file" ]; then say "there:   $file"; else say "missing: $file"; missing=$((missing + 1)); fi
done
if [ -z "$action" ]; then
    [ "$missing" = 0 ] || die "$missing of the files are missing; --download or --synthesize FILE... gets them"
    exit 0
fi
setup_python
if [ "$action" = --download ]; then
    [ ! -e "$DATA_ROOT/manifest.json" ] || die "$DATA_ROOT has files that synthesize made; choose another folder"
    read -ra files <<<"$lengths"
    files=("${files[@]/#/eval_}")
    fetch=("$VENV/bin/hf" download "$dataset" "${files[@]/%/.json}" --repo-type dataset --local-dir "$DATA_ROOT"
        ${EVAL_REVISION:+--revision "$EVAL_REVISION"})
    if [ "$DRY_RUN" = 1 ]; then print_command "${fetch[@]}"; exit; fi
    "${fetch[@]}"
    [ -z "${LENGTHS:-}" ] || exec bash "${BASH_SOURCE[0]}" # which says what is there
else
    exec_or_print "$VENV/bin/python" -P -m mem_agent synthesize --raw "${@:2}" --lengths "$lengths" \
        --output "$DATA_ROOT" ${QUESTIONS:+--questions "$QUESTIONS"} --seed "${SEED:-42}" \
        ${CLOSED_BOOK:+--closed-book "$CLOSED_BOOK"}
fi
