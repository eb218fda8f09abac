#!/usr/bin/env bash
# Convert torch_dist checkpoints (of this pack, slime or vime) to Hugging Face folders; needs no GPU.
#
#   SAVE_PATH=... HF_CKPT=... SINGLE_ITER=iter_0000099 bash convert-to-hf.sh     -> SAVE_PATH/hf/iter_0000099
#   SAVE_PATH=... HF_CKPT=... AVERAGE="20 30 40" bash convert-to-hf.sh           -> SAVE_PATH/hf/average_20_30_40
#
# SINGLE_ITER is a folder's name or number, or all: every iter_* that is not converted yet. Without it, the newest.
# AVERAGE writes the mean of several, converting those that are not converted yet.
# OUTPUT names another folder for the result; FORCE=1 replaces what exists. PUSH_TO_HUB=ORG/NAME uploads one result, with
# its card; PRIVATE=1 makes its repository private.
source "$(dirname -- "${BASH_SOURCE[0]}")/_common.sh"
[ -n "${SAVE_PATH:-}" ] || die "set SAVE_PATH to the folder with iter_* checkpoints"
[ -n "${HF_CKPT:-}" ] || die "set HF_CKPT to the Hugging Face folder that training started from"
[ -z "${AVERAGE:-}" ] || [ -z "${SINGLE_ITER:-}" ] || die "set AVERAGE or SINGLE_ITER, not both"
[ -z "${OUTPUT:-}" ] || [ "${SINGLE_ITER:-}" != all ] || die "SINGLE_ITER=all writes several folders: unset OUTPUT"
[ -z "${PUSH_TO_HUB:-}" ] || [ "${SINGLE_ITER:-}" != all ] || die "SINGLE_ITER=all writes several folders: unset PUSH_TO_HUB"
push=()
[ -z "${PUSH_TO_HUB:-}" ] || push=(--push-to-hub "$PUSH_TO_HUB")
[ -z "${PUSH_TO_HUB:-}" ] || [ "${PRIVATE:-0}" != 1 ] || push+=(--private)
force=()
[ "${FORCE:-0}" != 1 ] || force=(--force)

# The names of all checkpoints, one a line.
checkpoints() {
    local folder
    for folder in "$SAVE_PATH"/iter_*/; do
        folder="$(basename -- "$folder")"
        if [[ $folder =~ ^iter_[0-9]{7,18}$ ]]; then printf '%s\n' "$folder"; fi
    done
}

# Set `name` to that of the checkpoint folder meant by $1, which must exist.
find_checkpoint() {
    local there
    name="$1"
    if [[ $1 =~ ^[0-9]{1,18}$ ]]; then name="iter_$(printf '%07d' "$((10#$1))")"; fi
    case "$name" in */* | . | ..) die "$name is no name of a checkpoint in $SAVE_PATH" ;; esac
    there="$(checkpoints | paste -sd ' ')"
    [ -d "$SAVE_PATH/$name" ] || die "$SAVE_PATH: no checkpoint $name; there are: ${there:-none}"
}

convert() {
    run "$python" -P -m mem_agent convert --input "$SAVE_PATH/$1" --hf "$HF_CKPT" --output "$2" "${force[@]}" "${@:3}"
}

# Convert $1 into SAVE_PATH/hf, unless it is there.
convert_once() {
    local output="$SAVE_PATH/hf/$1"
    if [ -e "$output" ] && [ "${#force[@]}" = 0 ]; then say "there: $output (FORCE=1 converts it again)"; return; fi
    convert "$1" "$output"
}

convert_all() {
    local found failed=()
    found="$(checkpoints)"
    [ -n "$found" ] || die "$SAVE_PATH: no iter_* checkpoints"
    for name in $found; do
        convert_once "$name" || failed+=("$name")
    done
    [ "${#failed[@]}" = 0 ] || die "not converted: ${failed[*]}; the lines above say why"
}

convert_average() {
    local number names=() inputs=() title=average
    for number in $AVERAGE; do
        find_checkpoint "$number"
        case " ${names[*]} " in *" $name "*) die "AVERAGE='$AVERAGE': $name is given twice" ;; esac
        names+=("$name")
        inputs+=("$SAVE_PATH/hf/$name")
        title="${title}_$(sed -E 's/^iter_0*([0-9])/\1/' <<<"$name")"
    done
    [ "${#names[@]}" -ge 2 ] || die "AVERAGE='$AVERAGE': at least 2 iterations are needed, such as \"20 30 40\""
    for name in "${names[@]}"; do
        convert_once "$name"
    done
    run "$python" -P -m mem_agent average --inputs "${inputs[@]}" \
        --output "${OUTPUT:-$SAVE_PATH/hf/$title}" "${force[@]}"
    [ "${#push[@]}" = 0 ] || run "$python" -P -m mem_agent card "${OUTPUT:-$SAVE_PATH/hf/$title}" "${push[@]}"
}

if [ -z "${SINGLE_ITER:-}${AVERAGE:-}" ]; then
    SINGLE_ITER="$(tracked "$SAVE_PATH")" || exit 1
fi
find_host
converting_python
if [ -n "${AVERAGE:-}" ]; then
    convert_average
elif [ "$SINGLE_ITER" = all ]; then
    convert_all
else
    find_checkpoint "$SINGLE_ITER"
    convert "$name" "${OUTPUT:-$SAVE_PATH/hf/$name}" "${push[@]}"
fi
