# shellcheck shell=bash
# Sourced by _common.sh: a recipe as a list of settings. Nothing in it is run, whoever wrote it:
#
#   NAME=value                  $NAME, ${NAME} and ${NAME:-text} are replaced, by lines above or variables of the user's
#   NAME="value"                the same; \" \$ and \` stand for themselves
#   NAME=$((8630 + ${SEED:-1})) the sum of two numbers
#   [OTHER=pattern] NAME=value  a line for those whose OTHER fits, as knn* does to MEM_IR=knn+
#
# A variable that is set stays, by the user or a line above. Lines and values have LONGEST_SETTING characters at most:
# as many are read in half a second, and $X$X on a few lines is a value that fills the memory.
LONGEST_SETTING=4096
LONGEST_RECIPE=65536

# Scripts that this one starts have all settings, and take neither the recipe again nor another one; Python refuses a
# RECIPE that was not loaded.
load_recipe() {
    local line number=0 length=0 text name condition='^\[([A-Z_][A-Z0-9_]*)=([^]]*)\] (.*)$' setting='^([A-Z_][A-Z0-9_]*)=(.*)$'
    [ "$1" != "${MEM_AGENT_RECIPE_LOADED:-}" ] || return 0
    [ -f "$1" ] || die "RECIPE='$1': no such file; $PACK_DIR/recipes has some"
    # A byte that begins a character and is the last of its line would take the next line along.
    while IFS= LC_ALL=C read -r -n $((LONGEST_SETTING + 1)) line || [ -n "$line" ]; do
        number=$((number + 1))
        length=$((length + ${#line} + 1))
        [ "$length" -le "$LONGEST_RECIPE" ] || die "$1 has more than $LONGEST_RECIPE characters"
        [ "${#line}" -le "$LONGEST_SETTING" ] ||
            die "$1:$number: a line of more than $LONGEST_SETTING characters"
        if [[ $line =~ ^[[:blank:]]*(#|$) ]]; then continue; fi
        if [[ $line =~ $condition ]]; then
            name="${BASH_REMATCH[1]}" text="${BASH_REMATCH[2]}" line="${BASH_REMATCH[3]}"
            case "$text" in *'('*) not_a_setting "$1:$number" "[$name=$text]" ;; esac # *(*(a)) takes for ever to fit
            if is_secret "$name" || ! is_own "$name"; then
                die "$1:$number: $name is no setting that a line may ask for" # a text can be told letter by letter
            fi
            # shellcheck disable=SC2053  # it is a pattern
            [[ ${!name:-} == $text ]] || continue
        fi
        [[ $line =~ $setting ]] || not_a_setting "$1:$number" "$line"
        name="${BASH_REMATCH[1]}" text="${BASH_REMATCH[2]}"
        if [[ ${text//$'\t'/} == *[[:cntrl:]]* ]]; then not_a_setting "$1:$number" "$line"; fi # a plan is shown
        if [[ $text =~ ^\"(.*)\"$ ]]; then text="${BASH_REMATCH[1]}"; fi
        [ -z "${!name:-}" ] || continue
        expand "$1:$number" "$text"
        if may_set "$1:$number" "$name" "$expanded"; then export "$name=$expanded"; fi
    done <"$1"
    export RECIPE="$1" MEM_AGENT_RECIPE_LOADED="$1"
}

# may_set WHERE NAME VALUE: whether a file of settings gives this variable; not one that is set. Ends where it is the
# user's alone to say: a name that is not known here may say to some library which code it runs, which protection it
# leaves out, or who gets the user's keys.
may_set() {
    [ -z "${!2:-}" ] || return 1
    if [ "$2" = TRUST_REMOTE_CODE ]; then
        case "${3,,}" in '' | 0 | false | no | off) return 0 ;; esac
        die "$1: $2 runs Python that comes with a model; look at that code, and set it yourself"
    fi
    if is_own "$2"; then return 0; fi
    [ -z "${!2+set}" ] || return 1 # no text is a value as well: VLLM_PLUGINS= loads none
    if is_address "$2"; then
        [[ $3 =~ ^(https?://[^/].*)?$ ]] || die "$1: $2 is an address, and '$3' is none; set it yourself"
        return 0
    fi
    is_of_libraries "$2" || die "$1: $2 is no setting of the pack, and none of a library that a recipe may have; set it yourself"
    case "$3" in *[/~]*) die "$1: $2 is no setting of the pack, and '$3' may be a file; set it yourself" ;; esac
}

# Settings of the pack and of its scripts.
is_own() {
    case "$1" in
        HF_CKPT | TORCH_DIST | TORCH_DIST_WRITER | TRAIN_* | TEST_FILE | DATA_DIR | DATA_ROOT | DATA_RECIPE | DATASETS | \
            SPLITS | SAVE_PATH | SAVE_FILE | SAVE_INTERVAL | OUTPUT | OUTPUT_DIR | PRIMARY_DATA_DIR | FALLBACK_DATA_DIR | \
            MODEL_* | CHAT_* | CKPTS_DIR | CKPT_STEPS | CURRICULUM_DIR | EXP_NAME | PROJECT_NAME | RESULTS | \
            AGENT* | TASK* | REWARD* | MEM_* | ANSWER_* | SIFTER_* | EVAL* | POCKET_* | EMBED* | RANK_* | BASE_URL | \
            TRACKER* | HOST | HOST_ARGS | HOST_ROOT | HOSTS_VENV | MEGATRON_ROOT | SGLANG_PYTHON | SGLANG_VENV | TRL_VENV | \
            RAY_ADDRESS | RAY_PORT | RAY_DASHBOARD_PORT | RAY_START_TIMEOUT | NUM_ENGINES | NUM_GPUS | \
            NUM_NODES | NUM_ROLLOUT | NNODES | MASTER_ADDR | \
            VENV | PYTHON | PUSH_TO_HUB | PRIVATE | QUESTIONS | RECIPE | RUNTIME_ENV | TOKENIZER | TORCH_INDEX | \
            ADAM_BETA[12] | ADV_STD | CLIP_GRAD | WEIGHT_DECAY | LR | LR_* | LORA_* | LOSS | LOSS_AGG | EPS_CLIP* | \
            KL_COEF | TIS | OVERLONG_* | OVER_SAMPLING_BATCH_SIZE | GLOBAL_BATCH_SIZE | ROLLOUT_* | DYNAMIC_FILTER* | \
            N_SAMPLES_PER_PROMPT | FULLY_ASYNC | FULL_INPUT_TOKENS | MAX_GEN_BATCHES | MAX_TOKENS_PER_GPU | MAX_INPUT_TOKENS | MAX_OUTPUT_TOKEN | \
            MAX_PROMPT_TOKENS | SEED | TEMPERATURE | TOP_[KP] | VAL_* | \
            TP | PP | CP | GPU_MEMORY_GB | SHARE_PREFIXES | ENGINE_* | SERVE_BODY_MB | SERVE_CONCURRENCY | \
            SERVE_DOCUMENT_TOKENS | SERVE_FILES_MB | SERVE_PARSE_TIMEOUT | SERVE_TIMEOUT | KEEP_* | REHEARSE* | STYLE | LENGTH* | \
            METHODS | ROUNDS | WARM_UP_ROUNDS | SINGLE_ITER | CLOSED_BOOK | AVERAGE | AVERAGE_BEST | CONVERT | FORCE | \
            NAME | VERSION | DRY_RUN | API_KEY | OPENAI_API_KEY) ;;
        *) return 1 ;;
    esac
}

# Variables of libraries, to which no value does harm: numbers, words, the names of devices.
is_of_libraries() {
    case "$1" in
        CUDA_VISIBLE_DEVICES | CUDA_DEVICE_ORDER | CUDA_DEVICE_MAX_CONNECTIONS | CUDA_LAUNCH_BLOCKING | \
            CUDA_MODULE_LOADING | CUBLAS_WORKSPACE_CONFIG | NVIDIA_TF32_OVERRIDE | HIP_VISIBLE_DEVICES | \
            ROCR_VISIBLE_DEVICES | PYTORCH_ALLOC_CONF | PYTORCH_CUDA_ALLOC_CONF | TORCH_CUDA_ARCH_LIST | \
            TORCH_DISTRIBUTED_DEBUG | TORCH_CPP_LOG_LEVEL | TORCHDYNAMO_DISABLE | \
            TORCH_NCCL_ASYNC_ERROR_HANDLING | TORCH_NCCL_AVOID_RECORD_STREAMS | TORCH_NCCL_BLOCKING_WAIT | \
            TORCH_NCCL_ENABLE_MONITORING | TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC | TORCH_NCCL_TRACE_BUFFER_SIZE | \
            NCCL_DEBUG | NCCL_DEBUG_SUBSYS | NCCL_ALGO | NCCL_PROTO | NCCL_IB_* | NCCL_SOCKET_* | NCCL_P2P_* | \
            NCCL_SHM_* | NCCL_NVLS_* | NCCL_CUMEM_* | NCCL_NET_GDR_* | NCCL_CROSS_NIC | NCCL_PXN_DISABLE | \
            NCCL_*_NCHANNELS | NCCL_*_CTAS | NCCL_BUFFSIZE | NCCL_NTHREADS | NCCL_TIMEOUT | NCCL_*WAIT | \
            NCCL_ASYNC_ERROR_HANDLING | NCCL_IGNORE_CPU_AFFINITY | GLOO_SOCKET_IFNAME | TP_SOCKET_IFNAME | \
            UCX_NET_DEVICES | UCX_TLS | \
            OMP_NUM_THREADS | MKL_NUM_THREADS | OPENBLAS_NUM_THREADS | OMP_PROC_BIND | OMP_PLACES | OMP_WAIT_POLICY | OMP_DYNAMIC | GOMP_SPINCOUNT | KMP_AFFINITY | \
            KMP_BLOCKTIME | TOKENIZERS_PARALLELISM | MALLOC_ARENA_MAX | PYTHONUNBUFFERED | PYTHONHASHSEED | \
            NVTE_FLASH_ATTN | NVTE_FUSED_ATTN | NVTE_UNFUSED_ATTN | NVTE_ALLOW_NONDETERMINISTIC_ALGO | NVTE_DEBUG | \
            NVTE_DEBUG_LEVEL | NVTE_FP8_* | NVTE_TORCH_COMPILE | \
            VLLM_ATTENTION_BACKEND | VLLM_FLASH_ATTN_VERSION | VLLM_LOGGING_LEVEL | VLLM_USE_V1 | VLLM_USE_DEEP_GEMM | \
            VLLM_USE_FLASHINFER_SAMPLER | VLLM_WORKER_MULTIPROC_METHOD | VLLM_ENABLE_V1_MULTIPROCESSING | \
            VLLM_ALLOW_LONG_MAX_MODEL_LEN | VLLM_ENGINE_ITERATION_TIMEOUT_S | VLLM_BATCH_INVARIANT | \
            VLLM_DISABLE_COMPILE_CACHE | VLLM_CPU_KVCACHE_SPACE | VLLM_CPU_OMP_THREADS_BIND | \
            VLLM_CPU_NUM_OF_RESERVED_CPU | VLLM_NO_USAGE_STATS | \
            SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK | SGL_ENABLE_JIT_DEEPGEMM | SGLANG_DISABLE_CUDNN_CHECK | \
            SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN | SGLANG_ENABLE_DETERMINISTIC_INFERENCE | \
            RAY_DEDUP_LOGS | RAY_memory_monitor_refresh_ms | RAY_memory_usage_threshold | \
            HF_HUB_OFFLINE | HF_DATASETS_OFFLINE | TRANSFORMERS_OFFLINE | TRANSFORMERS_VERBOSITY | DATASETS_VERBOSITY | \
            HF_HUB_DOWNLOAD_TIMEOUT | HF_HUB_ETAG_TIMEOUT | HF_HUB_DISABLE_XET | HF_HUB_DISABLE_TELEMETRY | \
            HF_HUB_DISABLE_PROGRESS_BARS | HF_HUB_ENABLE_HF_TRANSFER | DO_NOT_TRACK | \
            WANDB_PROJECT | WANDB_ENTITY | WANDB_MODE | WANDB_NAME | WANDB_NOTES | WANDB_TAGS | WANDB_RUN_GROUP | \
            WANDB_RUN_ID | WANDB_RESUME | WANDB_JOB_TYPE | WANDB_SILENT | MLFLOW_EXPERIMENT_NAME | MLFLOW_RUN_NAME) ;;
        *) return 1 ;;
    esac
}

is_address() { case "$1" in HF_ENDPOINT | WANDB_BASE_URL | MLFLOW_TRACKING_URI) ;; *) return 1 ;; esac; }

# Whether NAME is that of a key, as system/process_environment.py has them; a number of tokens is none. Without a regular
# expression: BASH_REMATCH is the caller's.
is_secret() {
    local said="_${1^^}_" part
    for part in TOKENIZER TIKTOKEN TOKEN_RATIO IB_PKEY NCCL_PAT SSH_AUTH_SOCK RAY_AUTH_MODE; do said="${said//$part/}"; done
    case "$said" in
        *TOKEN*) case "${!1:-}" in *[!0-9]*) ;; *) return 1 ;; esac ;;
        *KEY* | *SECRET* | *PASSWORD* | *PASSWD* | *PASSPHRASE* | *PASSCODE* | *PASSCOMMAND* | *CREDENTIAL* | *CREDS* | \
            *COOKIE* | *AUTHORIZATION* | *CONNECTION_STRING* | *WEBHOOK* | ?*_PWD_ | *_AUTH_* | *_OAUTH_* | *_PASS_* | \
            *_PGPASS_* | *_SSHPASS_* | *_PSW_* | *_PW_* | *_BINDPW_* | *_PAT_* | *_JWT_* | *_OTP_* | *_SAS_* | *_DSN_*) ;;
        *) return 1 ;;
    esac
}

# expand WHERE TEXT: set `expanded` to TEXT with its variables replaced.
# shellcheck disable=SC2016  # patterns
expand() {
    local rest="$2" name other variable='^\$([A-Za-z_][A-Za-z0-9_]*|\{([A-Za-z_][A-Za-z0-9_]*)(:-([^$`{}\\]*))?\})'
    local plain='^([^$`\\]+|\\)' escaped='^\\([$`"\\])' sum='^\$\(\(([^()]+) \+ ([^()]+)\)\)$' digits='^[0-9]{1,9}$'
    expanded=''
    if [[ $rest =~ $sum ]]; then
        name="${BASH_REMATCH[1]}" other="${BASH_REMATCH[2]}"
        expand "$1" "$name"; name="$expanded"
        expand "$1" "$other"; other="$expanded"
        [[ $name =~ $digits && $other =~ $digits ]] || die "$1: '$name + $other' is no sum of two numbers"
        expanded=$((10#$name + 10#$other))
        return
    fi
    while [ -n "$rest" ]; do
        if [[ $rest =~ $escaped ]]; then
            expanded+="${BASH_REMATCH[1]}"
        elif [[ $rest =~ $variable ]]; then
            name="${BASH_REMATCH[2]:-${BASH_REMATCH[1]}}"
            if is_secret "$name"; then die "$1: \$$name is a key, and a recipe reads none; set what is to have it yourself"; fi
            if [ -n "${BASH_REMATCH[3]}" ]; then
                expanded+="${!name:-${BASH_REMATCH[4]}}"
            else
                [ -n "${!name+set}" ] || die "$1: $name is not set; write \${$name:-...} for a value in its place"
                expanded+="${!name}"
            fi
        elif [[ $rest =~ $plain ]]; then
            expanded+="${BASH_REMATCH[1]}"
        else
            not_a_setting "$1" "$2"
        fi
        rest="${rest:${#BASH_REMATCH[0]}}"
        [ "${#expanded}" -le "$LONGEST_SETTING" ] || die "$1: a value of more than $LONGEST_SETTING characters"
    done
}

not_a_setting() {
    die "$1: '$2' is no setting; a recipe has lines NAME=value with \$NAME or \${NAME:-text} in them, and runs nothing"
}
