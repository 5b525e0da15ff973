#!/usr/bin/env bash
# Several hosts on one machine: a namespace of everything each, joined by a bridge.
#
# All hosts live in a *room*: a process with a process, network and mount namespace of
# its own, in which the bridge and the hosts are made. Whatever happens, ending that one
# process ends them all, and takes the links and mounts along; nothing of it is visible
# in the network of the machine. Besides it there is only a folder with keys and logs.
set -euo pipefail
self=$(readlink -f "${BASH_SOURCE[0]}")
# shellcheck source=scripts/lib.sh
. "${self%/*}/lib.sh"

usage="usage: scripts/hosts.sh up N [--rate 1gbit]   make hosts node1 ... nodeN (needs root and sshd)
       scripts/hosts.sh exec HOST COMMAND...    run a command on one of them
       scripts/hosts.sh run [-n RANKS | --ranks 2,1,2] [--mpi mpich|openmpi|impi] -- COMMAND...
                                                mpirun on node1, over ssh; ranks are spread evenly
       scripts/hosts.sh link HOST up|down|RATE  pull the cable, put it back, make it slow
       scripts/hosts.sh status                  what is up
       scripts/hosts.sh down                    end everything, and leave nothing

  HOST is node2 or 2; RATE is as in tc, such as 100mbit, or none. Other variables:
  HOSTS_PREFIX=NAME  another set of hosts, beside the one that is up
  HOSTS_ENV=FOLDER   the environment that run takes; otherwise that of scripts/test.sh"

prefix=${HOSTS_PREFIX:-ringfold}
[[ $prefix =~ ^[a-z0-9]+$ ]] || die "HOSTS_PREFIX is '$prefix'; wanted letters and digits"
state=/tmp/hosts-$prefix # not in /run, of which every host has its own

# --- in the room -----------------------------------------------------------------------

# note NAME: write down this process as the machine sees it, whose /proc is still mounted.
note() {
    local pid _
    read -r pid _ </proc/self/stat
    echo "$pid" >"$state/$1.pid"
}

# room N: make bridge and hosts, then stay, and reap what loses its parent.
room() {
    local count=$1 i
    note room
    mount -t tmpfs tmpfs /run # where ip keeps the names of network namespaces
    ip link add bridge type bridge
    ip link set bridge up
    for ((i = 1; i <= count; i++)); do
        ip netns add "node$i"
        ip link add "port$i" type veth peer name eth0 netns "node$i"
        ip link set "port$i" master bridge up
        ip netns exec "node$i" unshare --uts --mount --ipc --pid --fork --kill-child \
            "$self" _host "$i" &
    done
    wait
}

# host I: what a machine does when it is switched on.
host() {
    local i=$1
    note "node$i"
    mount -t proc proc /proc
    hostname "node$i"
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir /run/sshd
    mkdir -m 1777 /run/tmp
    mount --bind "$state/hosts" /etc/hosts
    mount --bind "$state/ssh_config" /etc/ssh/ssh_config
    # What a user's shell does at every login is not part of these hosts: one that is ended
    # in the middle may leave a lock behind, for which all others would wait.
    [ ! -e ~/.bashrc ] || mount --bind /dev/null ~/.bashrc
    ip link set lo up
    ip address add "$(address "$i")/24" dev eth0
    ip link set eth0 up
    # Intel MPI's mpirun waits for a host that was cut off until TCP gives up: not 15 min.
    echo 5 >/proc/sys/net/ipv4/tcp_retries2
    "$(command -v sshd)" -D -f "$state/sshd_config" -E "$state/sshd.node$i.log" &
    wait # keeps reaping, as the first process of a machine has to
}

address() { echo "10.77.0.$1"; }

# --- outside ---------------------------------------------------------------------------

# Print the process, if it is there and ours, that a file names.
process() {
    local pid
    pid=$(cat "$state/$1.pid" 2>/dev/null) || return 1
    tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q "/hosts.sh _" || return 1
    echo "$pid"
}

names() { sed -n 's/^.* \(node[0-9]*\)$/\1/p' "$state/hosts"; }

# Print the full name of a host that is up.
name_of() {
    local name=node${1#node}
    is_up || die "no hosts are up under the prefix $prefix; scripts/hosts.sh up 2"
    names | grep -qx "$name" || die "there is no host $1; up are: $(names | paste -sd' ')"
    echo "$name"
}

is_up() { process room >/dev/null; }

# inside FOLDER COMMAND...: run it in the namespaces of the process that a file names.
inside() {
    local pid
    pid=$(process "$1") || die "$1 is not there any more"
    shift
    # Entering a mount namespace leads to its root.
    # shellcheck disable=SC2016
    nsenter --target "$pid" --mount --uts --ipc --net --pid \
        bash -c 'export TMPDIR=/run/tmp; cd "$0" && exec "$@"' "$PWD" "$@"
}

write_files() {
    local count=$1 i
    ssh-keygen -q -t ed25519 -N "" -C "$prefix" -f "$state/key"
    ssh-keygen -q -t ed25519 -N "" -C "$prefix" -f "$state/host_key"
    cp "$state/key.pub" "$state/authorized_keys"
    echo "* $(cut -d' ' -f1,2 "$state/host_key.pub")" >"$state/known_hosts"
    echo "127.0.0.1 localhost" >"$state/hosts"
    for ((i = 1; i <= count; i++)); do echo "$(address "$i") node$i"; done >>"$state/hosts"
    cat >"$state/ssh_config" <<CONFIG
Host *
    IdentityFile $state/key
    UserKnownHostsFile $state/known_hosts
    StrictHostKeyChecking yes
    BatchMode yes
    LogLevel ERROR
    ServerAliveInterval 2
    ServerAliveCountMax 3
CONFIG
    cat >"$state/sshd_config" <<CONFIG
HostKey $state/host_key
AuthorizedKeysFile $state/authorized_keys
PasswordAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
MaxStartups 100
ClientAliveInterval 2
ClientAliveCountMax 3
SetEnv TMPDIR=/run/tmp
CONFIG
}

up() {
    local count="" rate=none i
    while [ $# -gt 0 ]; do
        case $1 in
            --rate) rate=${2:-} && shift ;;
            --rate=*) rate=${1#--rate=} ;;
            *) count=$1 ;;
        esac
        shift
    done
    [[ $count =~ ^[1-9][0-9]?$ ]] || die "the number of hosts is '$count'; wanted 1 to 99"
    [ "$(id -u)" = 0 ] || die "making hosts needs root"
    for i in ip tc unshare nsenter ssh ssh-keygen sshd; do
        command -v "$i" >/dev/null || die "there is no $i (apt-get install openssh-server iproute2)"
    done
    is_up && die "$(names | wc -l) hosts are up already under the prefix $prefix; scripts/hosts.sh down"
    rm -rf "$state" # of hosts whose room was ended by somebody else
    mkdir -m 700 "$state"
    write_files "$count"
    setsid unshare --net --mount --pid --fork --kill-child \
        "$self" _room "$count" </dev/null >"$state/room.log" 2>&1 &
    trap 'down; die "the hosts did not come up"' EXIT
    for ((i = 1; i <= count; i++)); do await "$i"; done
    for ((i = 1; i <= count; i++)); do link "$i" "$rate"; done
    trap - EXIT
    say "up: $(names | paste -sd' '), rate $rate"
}

# Wait until a host has been switched on and can be logged into from the first.
await() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        if process "node$1" >/dev/null &&
            inside node1 ssh -o ConnectTimeout=1 "node$1" true 2>/dev/null; then return; fi
        sleep 0.05
    done
    cat "$state"/*.log >&2
    return 1
}

link() {
    local name port end device
    local -a tc
    name=$(name_of "$1")
    port=port${name#node}
    case $2 in
        up | down) inside room ip link set "$port" "$2" ;;
        *)
            for end in "room $port" "$name eth0"; do
                read -r end device <<<"$end"
                tc=(tc qdisc replace dev "$device" root tbf rate "$2" burst 256k latency 50ms)
                [ "$2" != none ] || tc=(tc qdisc replace dev "$device" root pfifo_fast)
                inside "$end" "${tc[@]}"
            done
            ;;
    esac
}

run() {
    local ranks="" mpi=mpich count python i where=""
    local -a place=() hosts
    is_up || die "no hosts are up under the prefix $prefix; scripts/hosts.sh up 2"
    while [ $# -gt 0 ]; do
        case $1 in
            -n) ranks=$2 && shift ;;
            --ranks) IFS=, read -ra place <<<"$2" && shift ;;
            --mpi) mpi=$2 && shift ;;
            --) shift && break ;;
            *) break ;;
        esac
        shift
    done
    [ $# -gt 0 ] || die "$usage"
    mapfile -t hosts < <(names)
    count=${#hosts[@]}
    ranks=${ranks:-$count}
    for ((i = 0; i < count; i++)); do
        where+=",${hosts[i]}:${place[i]-$((ranks / count + (i < ranks % count)))}"
    done
    python=${HOSTS_ENV:-${self%/scripts/*}/$(folder_of "$mpi")}/bin/python
    [ -x "$python" ] || die "there is no $python; scripts/test.sh --mpi $mpi makes it"
    inside node1 "$python" "${self%/scripts/*}/tests/harness/launch.py" \
        "${where#,}" "$@"
}

status() {
    local name pid
    if ! is_up; then
        echo "no hosts are up under the prefix $prefix"
        return 1
    fi
    for name in $(names); do
        pid=$(process "$name") || { echo "$name: not there any more" && continue; }
        echo "$name: $(inside "$name" ip -br address show eth0 | xargs)"
        inside "$name" tc qdisc show dev eth0 | sed 's/^/    /'
        inside "$name" ps -e -o pid=,args= | sed 's/^/    /'
    done
}

down() {
    local pid tries
    if pid=$(process room); then
        kill -KILL "$pid"
        for ((tries = 0; tries < 100; tries++)); do
            [ -e "/proc/$pid" ] || break
            sleep 0.05
        done
        [ ! -e "/proc/$pid" ] || die "process $pid, the room of all hosts, does not end"
    fi
    rm -rf "$state"
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
    _room) room "$@" ;;
    _host) host "$@" ;;
    up | run | status | down) "$command" "$@" ;;
    link)
        [ $# -eq 2 ] || die "$usage"
        link "$@"
        ;;
    exec)
        [ $# -ge 2 ] || die "$usage"
        name=$(name_of "$1")
        shift
        inside "$name" "$@"
        ;;
    -h | --help) echo "$usage" ;;
    *) die "$usage" ;;
esac
