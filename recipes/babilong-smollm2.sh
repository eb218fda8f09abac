#!/usr/bin/env bash
# BABILong by SmolLM2-135M on two CPU cores: data, supervised start, GRPO, evaluation and report (docs/babilong.md).
#
#   bash recipes/babilong-smollm2.sh TEXT...     texts to hide the facts in, such as two novels; all goes to runs/babilong
#
# The same command continues where it was interrupted. STEPS="data train" takes some of data, train, grpo, eval, report;
# LENGTHS="1k 8k" evaluates these lengths; SEED=2 is another run of GRPO; RUNS is another folder. DRY_RUN=1 prints.
# shellcheck source=_common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../_common.sh"
[ "$#" -gt 0 ] || die "name texts to hide the facts in, such as: bash recipes/babilong-smollm2.sh novel.txt"
mapfile -t texts < <(realpath -- "$@")
cd -- "$PACK_DIR" || exit
export RECIPE=recipes/babilong-smollm2.env
runs="${RUNS:-runs/babilong}" seed="${SEED:-1}" steps=" ${STEPS:-data train grpo eval report} "
start="$runs/smollm2" last="$runs/grpo-$seed"
setup_python

run() { if [ "$DRY_RUN" = 1 ]; then print_command "$@"; else "$@"; fi; }
mem_agent() { run "$VENV/bin/python" -P -m mem_agent "$@"; }
newest() { find "$1/hf" -maxdepth 1 -name 'iter_*' 2>/dev/null | sort | tail -1 | grep . || echo "$1/hf/iter_..."; }

# prepare FOLDER SAMPLES LENGTHS OPTION...: 5 questions a document from 8k on, so that they are read side by side.
prepare() {
    mem_agent prepare --babilong qa1,qa2,qa3,qa4,qa5 --background "${texts[@]}" --tokenizer "$start" --seed 42 \
        --output "$runs/$1" --samples "$2" --lengths "$3" "${@:4}"
}

# supervise NAME MODEL ROWS STEPS LR: one phase of the supervised start.
supervise() {
    run env LOSS=sft HF_CKPT="$2" TRAIN_DATA="$runs/short/train.jsonl@[$3]" SAVE_PATH="$runs/$1" NUM_ROLLOUT="$4" \
        LR="$5" EVAL=0 ROLLOUT_SHUFFLE=0 bash run-train.sh
}

# evaluate MODEL NAME: every length that there are files of, shortest first.
evaluate() {
    local length folder
    for length in ${LENGTHS:-0k 1k 2k 4k 8k 16k 32k 128k 1m}; do
        folder=short
        case "$length" in 8k | 16k | 32k) folder=middle ;; 64k | 128k) folder=long ;; 512k | 1m | 10m) folder=longest ;; esac
        run env MODEL_PATH="$1" DATA_ROOT="$runs/$folder" RESULTS="$runs/results" SAVE_FILE="$2" \
            LENGTH="qa1_$length qa2_$length qa3_$length qa4_$length qa5_$length" bash run-eval.sh
    done
}

if [[ "$steps" = *" data "* ]]; then
    mem_agent smollm2 --output "$start"
    weights=qa1,qa2,qa3,qa5,qa4,qa2,qa3,qa5,qa4,qa2,qa3,qa5
    prepare short 50 0k,1k,2k,4k --rows 4000 --train-lengths 200,300,500,800,1500 --train-tasks "$weights"
    prepare middle 50 8k,16k,32k --together 5 --rows 1500 --train-lengths 1k,2k,4k --questions 1 # GRPO's rows
    prepare long 20 128k --together 5 --rows 1
    prepare longest 5 1m --together 5 --rows 1
fi
if [[ "$steps" = *" train "* ]]; then
    supervise sft-1 "$start" :1280 160 2e-4
    supervise sft-2 "$(newest "$runs/sft-1")" 1280:1600 40 5e-5
fi
if [[ "$steps" = *" grpo "* ]]; then
    run env HF_CKPT="$(newest "$runs/sft-2")" TRAIN_DATA="$runs/middle/train.jsonl" SAVE_PATH="$last" SEED="$seed" \
        NUM_ROLLOUT=10 LR=1e-5 EVAL=0 bash run-train.sh
fi
if [[ "$steps" = *" eval "* ]]; then
    evaluate "$(newest "$runs/sft-2")" supervised
    evaluate "$(newest "$last")" "grpo-$seed"
fi
if [[ "$steps" = *" report "* ]]; then
    mem_agent report --output "$runs/report" "$runs/results/supervised" "$runs/results/grpo-$seed"
fi
