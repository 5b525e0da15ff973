#!/usr/bin/env bash
# A Slurm on the hosts that scripts/hosts.sh has made: a controller on node1, a daemon on
# each, which end with the hosts. Needs Debian's packages slurm-wlm and munge.
set -euo pipefail
self=$(readlink -f "${BASH_SOURCE[0]}")
# shellcheck source=scripts/lib.sh
. "${self%/*}/lib.sh"

usage="usage: scripts/hosts.sh up 2
       scripts/slurm.sh                            start Slurm on the hosts that are up
       scripts/hosts.sh exec 1 sbatch JOB_SCRIPT   and whatever else Slurm offers
       scripts/hosts.sh down"
[ $# -eq 0 ] || die "$usage"

hosts=${self%/*}/hosts.sh
for tool in slurmctld slurmd munged sinfo; do
    command -v "$tool" >/dev/null || die "there is no $tool (apt-get install slurm-wlm munge)"
done
count=$("$hosts" status | grep -c '^node') || die "no hosts are up; scripts/hosts.sh up 2"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
(umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
cat >"$folder/slurm.conf" <<CONFIG
ClusterName=hosts
SlurmctldHost=node1
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/run/slurm/slurmctld.log
SlurmdLogFile=/run/slurm/slurmd.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmi2
ReturnToService=2
NodeName=node[1-$count] CPUs=$(nproc) CoresPerSocket=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
CONFIG
# The hosts have no control groups of their own, and looking for some is an error.
echo "CgroupPlugin=cgroup/v1" >"$folder/cgroup.conf"

# On one host: the files where everything expects them, but in memory of its own.
# shellcheck disable=SC2016
begin='
mkdir -p /run/slurm/state /run/slurm/spool /run/munge
mount -t tmpfs tmpfs /etc/slurm
cp "$1"/*.conf /etc/slurm/
install -m 400 "$1/munge.key" /run/munge/key
munged --key-file /run/munge/key --socket /run/munge/munge.socket.2 \
    --pid-file /run/munge/pid --log-file /run/munge/log --seed-file /run/munge/seed
[ "$(hostname)" != node1 ] || slurmctld
slurmd'
for ((i = 1; i <= count; i++)); do
    "$hosts" exec "$i" bash -ec "$begin" begin "$folder"
done

for ((tries = 0; tries < 100; tries++)); do
    idle=$("$hosts" exec 1 sinfo --noheader --format=%D --states=idle 2>/dev/null) || idle=0
    if [ "${idle:-0}" -eq "$count" ]; then
        say "Slurm runs on $count hosts"
        exit
    fi
    sleep 0.2
done
for ((i = 1; i <= count; i++)); do
    "$hosts" exec "$i" bash -c 'tail -n 20 /run/slurm/*.log /run/munge/log' >&2
done
die "the hosts are not idle after 20 s"
