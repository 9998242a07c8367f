#!/bin/sh
# serve.sh WORK omni|tts [SERVER OPTION...]: the whole vLLM-Omni server on the CPU with a tiny random model, e.g.
# serve.sh /tmp/w omni --port 8091 --log-stats. On 127.0.0.1.
#   WORK      folder for its home and for what the stages' models produced (truth-omni, truth-tts); made if missing
#   WORKERS   uni: the worker lives in the stage process, as on one GPU; mp: a process of its own, as with tensor
#             parallelism                                           (default uni)
#   DEPLOY    another deploy file
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case ${2:-} in
omni) deploy=deploy.yaml ;;
tts) deploy=deploy-tts.yaml ;;
*) echo "usage: $0 WORK omni|tts [SERVER OPTION...]" >&2 && exit 2 ;;
esac
kind=$2
mkdir -p "$1/home"
work=$(cd "$1" && pwd)
shift 2
envdir=$("$here/../install.sh" --path vllm-omni-cpu)
export OMNI_CPU_TRUTH="$work/truth-$kind"
[ "${WORKERS:-uni}" = mp ] && mp=1 || mp=0
export VLLM_ENABLE_V1_MULTIPROCESSING=$mp # vLLM's CPU platform turns "uni" into "mp" unless this is 0
export OMP_NUM_THREADS=1 VLLM_CPU_OMP_THREADS_BIND=nobind
export VLLM_CACHE_ROOT="$envdir/vllm-cache" # what it learns about model classes, for the next start
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 HOME="$work/home"
exec "$envdir/bin/vllm-omni" serve "$envdir/models/$kind" --omni --host 127.0.0.1 \
	--served-model-name "tiny-$kind" --deploy-config "${DEPLOY:-$here/$deploy}" --stage-init-timeout 300 "$@"
