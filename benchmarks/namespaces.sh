#!/usr/bin/env bash
# Runs a command on several hosts with a limited network, all on this machine: network namespaces, each with a cable to a
# bridge in one more. Both ends of each cable send at most at the given rate, so it is full duplex.
set -euo pipefail

usage() {
  cat <<'HELP'
Usage: benchmarks/namespaces.sh [OPTIONS] -- COMMAND [ARGUMENTS]

Runs COMMAND in each of several network namespaces as one rank of a job: with RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and GRADWEAVE_SHARE_MEMORY=0. Rank r has the address 10.78.0.(r+1). Prints rank
0's output, and the others' if the job fails. Removes everything at its end.

  --hosts N        namespaces, 2 to 64; default 2
  --rate RATE      of each cable in each direction, as tc takes it; default 1gbit
  --burst BYTES    of the token buckets; default 128kb. Too small a one keeps TCP below the rate
  --latency TIME   how long a packet may wait for tokens before it is lost; default 20ms
  --delay TIME     added in each direction by netem, as tc takes it; default none
  --port PORT      MASTER_PORT; default 29500
  --help           this text

Needs root, and ip and tc of the package iproute2.
HELP
}

hosts=2 rate=1gbit burst=128kb latency=20ms delay= port=29500
while (($# > 0)); do
  case $1 in
    --help) usage; exit 0 ;;
    --) shift; break ;;
    --hosts | --rate | --burst | --latency | --delay | --port)
      (($# > 1)) || { echo "namespaces.sh: $1 needs a value; see --help" >&2; exit 2; }
      printf -v "${1#--}" %s "$2"; shift 2 ;;
    *) echo "namespaces.sh: '$1' is no option; give the command after --, see --help" >&2; exit 2 ;;
  esac
done
[[ $hosts =~ ^[0-9]+$ ]] && ((hosts >= 2 && hosts <= 64)) ||
  { echo "namespaces.sh: --hosts is '$hosts'; it has to be a number from 2 to 64" >&2; exit 2; }
[[ $port =~ ^[0-9]+$ ]] && ((port >= 1 && port <= 65535)) ||
  { echo "namespaces.sh: --port is '$port'; it has to be a number from 1 to 65535" >&2; exit 2; }
(($# > 0)) || { echo "namespaces.sh: there is no command; give one after --, see --help" >&2; exit 2; }
PATH=$PATH:/usr/sbin:/sbin
for needed in ip tc; do
  command -v "$needed" > /dev/null || { echo "namespaces.sh: there is no command $needed; install iproute2" >&2; exit 2; }
done
((EUID == 0)) || { echo "namespaces.sh: making network namespaces needs root; run it with sudo" >&2; exit 2; }

prefix=gradweave-$$
outputs=$(mktemp -d)
made=()
ranks=()

finish() {
  local status=$?
  trap - EXIT
  trap '' INT TERM HUP
  # Each rank has a process group of its own, with whatever it started.
  for rank in "${ranks[@]}"; do kill -TERM -- "-$rank" 2> /dev/null || true; done
  for rank in "${ranks[@]}"; do wait "$rank" 2> /dev/null || true; done
  for space in "${made[@]}"; do ip netns delete "$space" || true; done
  rm -rf "$outputs"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

add_space() {
  ip netns add "$1" || { echo "namespaces.sh: no network namespace; does this kernel or container allow it?" >&2; exit 1; }
  made+=("$1")
  ip -n "$1" link set lo up
}

limit() { # SPACE INTERFACE
  tc -n "$1" qdisc add dev "$2" root handle 1: tbf rate "$rate" burst "$burst" latency "$latency" ||
    { echo "namespaces.sh: tc refuses '--rate $rate --burst $burst --latency $latency'; see above" >&2; exit 1; }
  [[ -z $delay ]] || tc -n "$1" qdisc add dev "$2" parent 1:1 handle 10: netem delay "$delay" limit 10000 ||
    { echo "namespaces.sh: no delay '$delay': netem refuses it or is not in this kernel; leave --delay out" >&2; exit 1; }
}

switch=$prefix-switch
add_space "$switch"
ip -n "$switch" link add bridge type bridge
ip -n "$switch" link set bridge up
for ((rank = 0; rank < hosts; ++rank)); do
  space=$prefix-$rank
  add_space "$space"
  ip -n "$switch" link add "port$rank" type veth peer name wire netns "$space"
  ip -n "$switch" link set "port$rank" master bridge up
  ip -n "$space" addr add "10.78.0.$((rank + 1))/24" dev wire
  ip -n "$space" link set wire up
  limit "$space" wire
  limit "$switch" "port$rank"
done

set -m # a process group for each rank
for ((rank = 0; rank < hosts; ++rank)); do
  RANK=$rank WORLD_SIZE=$hosts LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.78.0.1 MASTER_PORT=$port \
    GRADWEAVE_SHARE_MEMORY=0 ip netns exec "$prefix-$rank" "$@" > "$outputs/$rank" 2>&1 < /dev/null &
  ranks+=($!)
done
set +m

tail -n +1 -f --pid="${ranks[0]}" -s 0.1 "$outputs/0" &
printer=$!
status=0
for ((rank = 0; rank < hosts; ++rank)); do
  wait "${ranks[rank]}" || { code=$?; ((status != 0)) || { status=$code; failed=$rank; }; }
done
wait "$printer" || true
ranks=()
if ((status != 0)); then
  echo "namespaces.sh: rank $failed ended with status $status; ranks 1 and up said:" >&2
  for ((rank = 1; rank < hosts; ++rank)); do sed "s/^/[rank $rank] /" "$outputs/$rank" >&2; done
fi
exit "$status"
