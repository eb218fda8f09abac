# shellcheck shell=bash
# Sourced by _common.sh: a recipe as a list of settings. Nothing in it is run, whoever wrote it:
#
#   NAME=value                  $NAME, ${NAME} and ${NAME:-text} are replaced, by lines above or variables of the user's
#   NAME="value"                the same; \" \$ and \` stand for themselves
#   NAME=$((8630 + ${SEED:-1})) the sum of two numbers
#   [OTHER=pattern] NAME=value  a line for those whose OTHER fits, as knn* does to MEM_IR=knn+
#
# A variable that is set stays, by the user or a line above. Lines and values have LONGEST_SETTING characters at most:
# as many are read in half a second, and $X$X on a few lines is a value that fills the memory. A recipe has MOST_LINES.
LONGEST_SETTING=4096
MOST_LINES=4096

# Scripts that this one starts have all settings, and take neither the recipe again nor another one; Python refuses a
# RECIPE that was not loaded.
load_recipe() {
    local line number=0 text name condition='^\[([A-Z_][A-Z0-9_]*)=([^]]*)\] (.*)$' setting='^([A-Z_][A-Z0-9_]*)=(.*)$'
    [ "$1" != "${MEM_AGENT_RECIPE_LOADED:-}" ] || return 0
    [ -f "$1" ] || die "RECIPE='$1': no such file; $PACK_DIR/recipes has some"
    # A byte that begins a character and is the last of its line would take the next line along.
    while IFS= LC_ALL=C read -r -n $((LONGEST_SETTING + 1)) line || [ -n "$line" ]; do
        number=$((number + 1))
        [ "$number" -le "$MOST_LINES" ] || die "$1 has more than $MOST_LINES lines"
        [ "${#line}" -le "$LONGEST_SETTING" ] ||
            die "$1:$number: a line of more than $LONGEST_SETTING characters"
        if [[ $line =~ ^[[:blank:]]*(#|$) ]]; then continue; fi
        if [[ $line =~ $condition ]]; then
            name="${BASH_REMATCH[1]}" text="${BASH_REMATCH[2]}" line="${BASH_REMATCH[3]}"
            case "$text" in *'('*) not_a_setting "$1:$number" "[$name=$text]" ;; esac # *(*(a)) takes for ever to fit
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
# user's alone to say.
may_set() {
    local why=''
    [ -z "${!2:-}" ] || return 1
    case "${2^^}" in # proxies have names in small letters as well
        LD_* | GCONV_PATH | GLIBC_TUNABLES | LOCPATH | OPENSSL_* | OMP_TOOL* | CUDA_INJECTION* | \
            *_PLUGIN | *_PLUGINS | *_PLUGIN_* | *_PRELOAD | \
            BASH* | PATH | CDPATH | ENV | IFS | SHELLOPTS | PS4 | POSIXLY_CORRECT | PROMPT_COMMAND | \
            PYTHON?* | *_PYTHONPATH | PERL5* | NODE_OPTIONS | NODE_PATH | GIT_* | PIP_*)
            why='says how programs are run' ;;
        *_CACHE_DIR | *_CACHE_ROOT | *_CACHE_PATH | *_CACHE_MANAGER | *_CACHE_BACKEND | *_MODULES_CACHE | XDG_* | \
            HF_*_CACHE | HUGGINGFACE_*_CACHE | *TRANSFORMERS_CACHE | *KERNELS_CACHE | MODELSCOPE_CACHE | *_HOME | HOME | \
            TMPDIR | TEMP | TMP | *_TMPDIR | RAY_T*MPDIR | \
            TORCH_EXTENSIONS_DIR | TORCHINDUCTOR_*_DIR | FLASHINFER_*_BASE | FLASHINFER_*_DIR | \
            CUDA_PATH | CUDA_INC_PATH | CUDACXX | CUDAHOSTCXX | ROCM_PATH | HIP_PATH | CC | CXX | \
            *_NVCC | *_NVCC_COMPILER | NVCC_*_FLAGS | \
            *CFLAGS | *CXXFLAGS | *LDFLAGS | CPATH | *INCLUDE_PATH | LIBRARY_PATH | COMPILER_PATH | GCC_EXEC_PREFIX | \
            *_SO_PATH | *_LIB_PATH | *_LIBRARY | TRITON_*PATH | TRITON_*DIR | *_COMPATIBILITY_PATH | \
            *_FRONTEND_PATH | *_BINARY_PATH | *_CCBIN | *FLAGS | *_LIB | *_LIBS | *_DRIVERS | \
            *_PROVIDER_PATH | LOCAL_KERNELS | DIST_EXTRA_CONFIG | UCX_MODULE_DIR | *_MCA_* | NCCL_CONF_FILE)
            why='says where code lies that is run' ;;
        MPL* | MATPLOTLIB* | *_HOOK | *_HOOKS | *SETUP_FUNCTION* | *_CALLBACKS | *_ORDER_FN | *_IMPORT_PATH | \
            TORCH_COMPILE_* | *LOGGING_CONFIG* | LMCACHE_CONFIG_FILE | MOONCAKE_CONFIG_PATH)
            why='names code that is run' ;;
        *_PROXY | *_PROXIES | SSL* | *_CA_BUNDLE | *_CA_CERT | *_CA_CERTS | *_SSL_ROOTS_FILE_PATH | *_DISABLE_SSL | \
            *TLS_CA* | NETRC | HOSTALIASES | LOCALDOMAIN | RES_OPTIONS | RAY_API_SERVER_ADDRESS | RAY_JOB_HEADERS)
            why='says through whose hands keys go' ;;
        *_AUTH_MODE | *_AUTH_TOKEN | *_USE_TLS | *_TLS_* | *INSECURE* | *NO_WEIGHTS_ONLY* | *PICKLE* | *_DEV_MODE | \
            *_RUNTIME_LORA_* | *_URL_ALLOW_REDIRECTS | *_OSX_CLUSTER | *_RPC_BASE_PATH)
            why='takes protection away' ;;
        TRUST_REMOTE_CODE)
            case "${3,,}" in '' | 0 | false | no | off) ;; *)
                die "$1: $2 runs Python that comes with a model; look at that code, and set it yourself" ;;
            esac ;;
    esac
    if [ -z "$why" ] && ! is_own "$2"; then check_foreign "$@"; fi
    [ -n "$why" ] || return 0
    [ -z "${!2+set}" ] || return 1 # no text is a value of these: VLLM_PLUGINS= loads none
    die "$1: $2 $why, and is no setting; set it yourself"
}

# Settings of the pack and of its scripts that are paths, or texts.
is_own() {
    case "$1" in
        HF_CKPT | TORCH_DIST* | TRAIN_DATA | TRAIN_FILE | TEST_FILE | DATA_* | DATASETS | SPLITS | SAVE_* | OUTPUT* | \
            MODEL_* | CHAT_* | CKPTS_DIR | CKPT_STEPS | CURRICULUM_DIR | *_DATA_DIR | EXP_NAME | PROJECT_NAME | RESULTS | \
            AGENT* | TASK* | REWARD* | MEM_* | ANSWER_* | SIFTER_* | EVAL_* | POCKET_* | EMBED* | RANK_* | BASE_URL | \
            TRACKER* | HOST | HOST_* | HOSTS_VENV | MEGATRON_ROOT | RAY_ADDRESS | SGLANG_PYTHON | SGLANG_VENV | TRL_VENV | \
            VENV | PYTHON | PUSH_TO_HUB | QUESTIONS | RECIPE | RUNTIME_ENV | TOKENIZER | TORCH_INDEX) ;;
        *) return 1 ;;
    esac
}

# check_foreign WHERE NAME VALUE: a variable that a library reads, if any does: numbers, words and addresses. Sets `why` of
# may_set where no value will do.
check_foreign() {
    case "${2^^}" in
        *_PATH | *_PATHS | *_FILE | *_FILENAME | *_LOGFILE | *_OUT | *_DIR | *_DIRECTORY | *_FOLDER | *_LOC | *_ROOT)
            why='names a file or a folder for a library'; return ;;
        *_ENDPOINT | *_URL | *_URI | *_HOST | *_ADDR | *_ADDRESS | *_SERVER)
            if [[ $3 =~ ^https?://[^/] ]]; then return; fi ;;
    esac
    case "$3" in
        *[/~]* | -* | .*)
            die "$1: $2 is no setting of the pack, and '$3' may be a file or an option for whoever reads it; set it yourself" ;;
    esac
}

# Whether NAME is that of a key, as system/process_environment.py has them; a number of tokens is none. Without a regular
# expression: BASH_REMATCH is the caller's.
is_secret() {
    case "_${1^^}_" in
        *TOKENIZERS* | *TIKTOKEN* | *IB_PKEY* | _SSH_AUTH_SOCK_ | _RAY_AUTH_MODE_) return 1 ;;
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
