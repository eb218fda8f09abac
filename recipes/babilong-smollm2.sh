#!/usr/bin/env bash
# BABILong by SmolLM2-135M on two CPU cores: data, supervised start, GRPO, evaluation and report (docs/babilong.md).
#
#   bash recipes/babilong-smollm2.sh TEXT...     texts to hide the facts in, such as novels; all goes to runs/babilong
#
# The same command continues where it was interrupted. STEPS="data train" takes some of data, train, grpo, baselines,
# eval, report; LENGTHS="1k 8k" evaluates these lengths; SEED=2 is another run of GRPO, START=sft-1 one from an earlier
# phase; RUNS is another folder. DRY_RUN=1 prints.
# shellcheck source=_common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../_common.sh"
[ "$#" -gt 0 ] || die "name texts to hide the facts in, such as: bash recipes/babilong-smollm2.sh novel.txt"
mapfile -t texts < <(realpath -- "$@")
cd -- "$PACK_DIR" || exit
export RECIPE=recipes/babilong-smollm2.env
runs="${RUNS:-runs/babilong}" start="${START:-sft-3}" steps=" ${STEPS:-data train grpo baselines eval report} "
smollm2="$runs/smollm2" grpo="grpo-${SEED:-1}"
if [ "$start" != sft-3 ]; then grpo="$start-$grpo"; fi
setup_python

run() { if [ "$DRY_RUN" = 1 ]; then print_command "$@"; else "$@"; fi; }
mem_agent() { run "$VENV/bin/python" -P -m mem_agent "$@"; }
newest() { find "$1/hf" -maxdepth 1 -name 'iter_*' 2>/dev/null | sort | tail -1 | grep . || echo "$1/hf/iter_..."; }

prepare() {
    mem_agent prepare --babilong qa1,qa2,qa3,qa4,qa5 --background "${texts[@]}" --tokenizer "$smollm2" --seed 42 "$@"
}

# rows NAME COUNT LENGTHS OPTION...: rows to train on. More stories of qa4 and qa5, where few facts change a memory.
rows() {
    prepare --output "$runs/rows/$1" --rows "$2" --train-lengths "$3" --samples 50 --lengths 0k \
        --train-tasks qa5,qa2,qa4,qa5,qa3,qa1,qa5,qa4,qa2,qa3 "${@:4}"
}

# questions NAME SAMPLES LENGTHS OPTION...: evaluation files. From 8k on 5 questions of a document are asked together.
questions() { prepare --output "$runs/$1" --samples "$2" --lengths "$3" --rows 1 "${@:4}"; }

# supervise NAME MODEL STEPS LR SECTIONS [SETTING...]: one phase of the supervised start.
supervise() {
    run env LOSS=sft HF_CKPT="$2" TRAIN_DATA="$runs/rows/$1/train.jsonl" SAVE_PATH="$runs/$1" NUM_ROLLOUT="$3" \
        LR="$4" AGENT_ARGS="whole_sentences=1 least_chunks=$5 turn_cost=0" EVAL=0 ROLLOUT_SHUFFLE=0 \
        "${@:6}" bash run-train.sh
}

# evaluate NAME MODEL LENGTHS [SETTING...]: in parts of two tasks, shortest first; what was answered is kept.
evaluate() {
    local length folder part
    for length in ${LENGTHS:-$3}; do
        folder=short
        case "$length" in 8k | 32k) folder=middle ;; 128k) folder=long ;; 1m) folder=longest ;; esac
        for part in "qa1_$length qa2_$length" "qa3_$length qa4_$length" "qa5_$length"; do
            run env MODEL_PATH="$2" DATA_ROOT="$runs/$folder" RESULTS="$runs/results" SAVE_FILE="$1" LENGTH="$part" \
                "${@:4}" bash run-eval.sh
        done
    done
}

if [[ "$steps" = *" data "* ]]; then
    mem_agent smollm2 --output "$smollm2"
    rows sft-1 756 0k,0k,100,200
    rows sft-2 288 200,500,1k,2k
    rows sft-3 192 0k,500,2k,8k
    rows grpo 400 1k,2k,4k --questions 1
    questions short 50 0k,1k,4k
    questions middle 50 8k,32k --together 5
    questions long 20 128k --together 5
    questions longest 5 1m --together 5
fi
if [[ "$steps" = *" train "* ]]; then
    # Facts with little around them, one in a section; then longer sections; then what evaluation reads.
    supervise sft-1 "$smollm2" 54 3e-4 128 ROLLOUT_BATCH_SIZE=14
    supervise sft-2 "$(newest "$runs/sft-1")" 36 1.5e-4 16
    supervise sft-3 "$(newest "$runs/sft-2")" 24 5e-5 32
fi
if [[ "$steps" = *" grpo "* ]]; then
    # Longer sections than in evaluation: a quarter of the turns, and more groups that are neither right nor wrong.
    run env HF_CKPT="$(newest "$runs/$start")" TRAIN_DATA="$runs/rows/grpo/train.jsonl" SAVE_PATH="$runs/$grpo" \
        SEED="${SEED:-1}" NUM_ROLLOUT=6 N_SAMPLES_PER_PROMPT=4 LR=1e-5 LR_WARMUP_STEPS=1 KL_COEF=0 EVAL=0 \
        AGENT_ARGS="whole_sentences=1 least_chunks=24 turn_cost=0" bash run-train.sh
fi
if [[ "$steps" = *" baselines "* ]]; then
    # The same model untrained, with the whole document in its prompt; and without gates, taught from there on.
    evaluate direct "$smollm2" "0k 1k 4k" EVAL_MODE=direct
    supervise sft-plain "$(newest "$runs/sft-2")" 60 1e-4 16 AGENT=memagent TRAIN_DATA="$runs/rows/sft-2/train.jsonl"
    evaluate plain "$(newest "$runs/sft-plain")" "0k 1k 8k" AGENT=memagent
fi
if [[ "$steps" = *" eval "* ]]; then
    evaluate "$start" "$(newest "$runs/$start")" "0k 1k 8k"
    evaluate "$grpo" "$(newest "$runs/$grpo")" "0k 1k 4k 8k 32k 128k 1m"
fi
if [[ "$steps" = *" report "* ]]; then
    mem_agent report --output "$runs/report" "$runs"/results/*/
fi
