#!/usr/bin/env bash
# Unit tests once, then per MPI the tests that start jobs, those on several hosts, and
# the tests on 1-5 ranks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

usage="usage: scripts/test.sh [--mpi mpich|openmpi|impi|all] [--quick|--full] [PYTEST ARGS]

  --mpi   which MPI, each in an environment of its own (default: mpich)
  --full  also the tests marked full
  Paths among PYTEST ARGS restrict the run to what they name, for instance
  scripts/test.sh tests/mpi/test_facade.py -k ring"

mpis=(mpich)
limit_s=600 # of one pytest run; far above the harness's own limit for one test
arguments=(-q)
declare -A paths=()
while [ $# -gt 0 ]; do
    case $1 in
        --mpi | --mpi=*)
            if [ "$1" = --mpi ]; then shift; fi
            mpi=${1:-}
            case ${mpi#--mpi=} in
                mpich | openmpi | impi) mpis=("${mpi#--mpi=}") ;;
                all) mpis=(mpich openmpi impi) ;;
                *) die "--mpi is '${mpi#--mpi=}'; wanted mpich, openmpi, impi or all" ;;
            esac
            ;;
        --quick) ;;
        --full) arguments+=(--full) && limit_s=1800 ;;
        -h | --help) echo "$usage" && exit ;;
        tests/unit* | tests/launch* | tests/hosts* | tests/mpi*)
            [ -e "${1%%::*}" ] || die "there is no ${1%%::*}"
            group=${1#tests/}
            paths[${group%%/*}]+="$1"$'\n'
            ;;
        tests | tests/) ;; # everything, as without it
        tests/*) die "$1 is not in tests/unit, tests/launch, tests/hosts or tests/mpi" ;;
        *) arguments+=("$1") ;;
    esac
    shift
done
[ -t 1 ] || export NO_COLOR=1

log=$(mktemp)
trap 'rm -f "$log"' EXIT
summary='^([0-9]+ [a-z]+|no tests ran).* in [0-9.]+s' # pytest's last line
# What runs on pretended hosts as well, which share no memory.
across_hosts=(tests/mpi/test_{matrix,hierarchical,all_reduce_many,deterministic,tune}.py)
table=()
ran=0
bad=0

# run MPI GROUP RANKS [HOSTS [GPUS]]: one pytest run and one row of the table; RANKS is -
# without mpirun, HOSTS the host of each rank where there are to be several, GPUS the
# pretended device of each rank.
run() {
    local mpi=$1 group=$2 ranks=$3 hosts=${4:-} gpus=${5:-} status=0 start=$SECONDS result
    local python
    python=$PWD/$(folder_of "$mpi")/bin/python
    local -a what=("tests/$group") job=("$python" -m pytest)
    [ -z "$hosts" ] || what=("${across_hosts[@]}")
    if [ -n "$gpus" ]; then
        what=(tests/mpi/gpu tests/mpi/strategy)
        [[ ${paths[$group]:-tests/mpi/gpu} == *tests/mpi/gpu* ]] || return 0
        [ "$ranks" -lt 4 ] || what=(tests/mpi/gpu/test_d{evice_matrix,ouble_*}.py)
        # On several hosts only these, which know of them.
        [ -z "$hosts" ] || what=(tests/mpi/gpu/test_{device_lanes,nccl}.py)
        [ -z "$hosts" ] || [ ${#paths[@]} -eq 0 ] || return 0
    fi
    if [ ${#paths[@]} -gt 0 ]; then
        [ -n "${paths[$group]:-}" ] || return 0
        mapfile -t what <<<"${paths[$group]%$'\n'}"
    fi
    [ -z "$hosts" ] || what+=(--hosts "$hosts")
    [ -z "$gpus" ] || what+=(--gpus "$gpus")
    [ "$ranks" = - ] || job=("$python" tests/harness/launch.py "$ranks" "${job[@]}")
    say "$mpi, tests/$group, ranks: $ranks${hosts:+, on hosts $hosts}${gpus:+, GPUs $gpus}"
    # tee has a limit too: a stray rank could hold its input open for ever.
    timeout --foreground --kill-after=10 "$limit_s" \
        "${job[@]}" "${arguments[@]}" "${what[@]}" </dev/null 2>&1 |
        timeout --foreground $((limit_s + 30)) tee "$log" || status=${PIPESTATUS[0]}
    # Status 5: nothing here is for so many ranks; an error only if that is so everywhere.
    case $status in 0 | 5) ;; *) bad=1 ;; esac
    if ! result=$(sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -E "$summary" | tail -n 1); then
        result="no summary, status $status"
        [ "$status" -ne 124 ] || result="killed after $limit_s s"
        bad=1
    fi
    if [[ $result =~ [0-9]\ (passed|failed|error) ]]; then ran=1; fi
    local where=${hosts:-$ranks}
    [ -z "$gpus" ] || where="GPUs $gpus${hosts:+ on $hosts}"
    table+=("$(printf '%-8s %-7s %-9s  %4ss  %s' "$mpi" "$group" "$where" \
        $((SECONDS - start)) "$result")")
}

for mpi in "${mpis[@]}"; do
    environment "$(folder_of "$mpi")" "$mpi" demo dev
done
run "${mpis[0]}" unit -
for mpi in "${mpis[@]}"; do
    run "$mpi" launch -
    run "$mpi" hosts -
    for ranks in 1 2 3 4 5; do run "$mpi" mpi "$ranks"; done
    run "$mpi" mpi 3 0,1,0
    run "$mpi" mpi 4 0,0,1,1
    run "$mpi" mpi 5 0,0,1,2,2
done
run "${mpis[0]}" mpi 1 "" 0,1,2,3
run "${mpis[0]}" mpi 2 "" 0,1
run "${mpis[0]}" mpi 4 "" 0,0,1,1
run "${mpis[0]}" mpi 4 0,0,1,1 0,1,2,3

say "summary"
printf '%-8s %-7s %-9s  %5s  %s\n' mpi tests ranks time result
printf '%s\n' "${table[@]}"
[ "$ran" -eq 1 ] || die "no test ran"
[ "$bad" -eq 0 ] || die "not everything passed"
say "everything passed"
