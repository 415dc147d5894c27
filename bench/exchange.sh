#!/bin/sh
# exchange.sh - bench/exchange, under MPS where that can be started.
#
#     bench/exchange.sh [OPTION]...
#
# Run it in the build directory.  Processes that share a GPU take turns on it;
# under MPS they run at once.  Where MPS does not start, the JSON says so, and
# its numbers say nothing of what runs beside what.  NCCL 2.30 and later lets
# several ranks share a GPU.
#
# SPDX-License-Identifier: Apache-2.0
set -u

: "${NCCL_MULTI_RANK_GPU_ENABLE:=1}" "${NCCL_NVLS_ENABLE:=0}"
: "${NCCL_MAX_CTAS:=8}"
export NCCL_MULTI_RANK_GPU_ENABLE NCCL_NVLS_ENABLE NCCL_MAX_CTAS

place=$(mktemp -d) || exit 2
mps=no
end()
{
    [ $mps = no ] || echo quit | nvidia-cuda-mps-control > /dev/null 2>&1
    mps=no
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}
trap 'end; rm -rf "$place"' EXIT

if command -v nvidia-cuda-mps-control > /dev/null 2>&1; then
    mkdir "$place/pipe" "$place/log"
    export CUDA_MPS_PIPE_DIRECTORY="$place/pipe"
    export CUDA_MPS_LOG_DIRECTORY="$place/log"
    if nvidia-cuda-mps-control -d > "$place/said" 2>&1; then
        mps=yes
    else
        echo "exchange.sh: no MPS: $(cat "$place/said")" >&2
        end
    fi
else
    echo "exchange.sh: no MPS: nvidia-cuda-mps-control is missing" >&2
fi
./bench/exchange "$@"
status=$?
if [ $status -ne 0 ] && [ $mps = yes ]; then
    echo "exchange.sh: again without MPS, which has said:" >&2
    cat "$place"/log/*.log >&2 2> /dev/null
    end
    ./bench/exchange "$@"
    status=$?
fi
exit $status
