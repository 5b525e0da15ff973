#!/usr/bin/env bash
# The main job: train a small network over ranks, then print a bandwidth table.
# Needs Python >= 3.10 and nothing else; the first run installs into .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

usage="usage: scripts/run.sh [-n RANKS]"
ranks=4
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

environment .venv mpich demo
export PATH="$PWD/.venv/bin:$PATH"

say "training on $ranks ranks"
show mpirun -n "$ranks" python docs/examples/train_digits.py
say "measuring all_reduce on 2 ranks"
show mpirun -n 2 ringfold bench all_reduce -b 1K -e 64M -f 8 --algorithm mpi,auto,ring
