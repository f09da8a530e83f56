#!/usr/bin/env bash
# Simulates several hosts on one machine. Each is a network namespace with its own address, and programs
# that run in it have their own host name, hosts file and /dev/shm. Needs root and iproute2; sends nothing
# to any real network.
#
#   scripts/netns-cluster.sh up 2 [OWNER]     two hosts, n0 (10.99.0.1) and n1 (10.99.0.2), also
#                                             called node0 and node1; prints the name of the cluster;
#                                             OWNER is the id of the process that uses it
#   scripts/netns-cluster.sh run NAME 1 command…      runs a command on n1
#   scripts/netns-cluster.sh alias NAME 1 web         gives n1 one more name; an address in place of the
#                                             1 gives that the name
#   scripts/netns-cluster.sh address NAME 1 10.99.0.77    gives n1 one more address
#   scripts/netns-cluster.sh shut NAME 1 10.99.0.2 29600-29699
#                                             answers nobody at these ports of that address, as a firewall
#   scripts/netns-cluster.sh cut NAME 1               pulls the cable of n1
#   scripts/netns-cluster.sh mend NAME 1              and puts it back
#   scripts/netns-cluster.sh relay NAME 1 [delay MS | loss P | stall | go]…
#                                             sends the traffic of n1 through scripts/link-relay.mjs
#   scripts/netns-cluster.sh down NAME
#   scripts/netns-cluster.sh clean            removes the clusters whose owner is dead
set -euo pipefail

state=/run/tsrun-netns
here=$(cd "$(dirname "$0")" && pwd)

fail() {
  echo "netns-cluster: $*" >&2
  exit 2
}

# The start time of a process, by which a reused process id is recognized.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

known() { [ -d "$state/$1" ] || fail "there is no cluster $1"; }

up() {
  local count=$1 owner=${2:-$PPID} name
  [ "$(id -u)" = 0 ] || fail 'needs root'
  command -v ip >/dev/null || fail 'needs ip (iproute2)'
  [[ $count =~ ^[0-9]+$ ]] && [ "$count" -ge 1 ] && [ "$count" -le 250 ] || fail 'up 1..250 [OWNER]'
  clean
  name=tsrun-$owner-$$
  mkdir -p "$state/$name"
  echo "$owner $(started "$owner")" >"$state/$name/owner"
  trap "down $name" EXIT
  printf '127.0.0.1 localhost\n::1 localhost\n' >"$state/$name/hosts"
  ip netns add "$name"
  ip -n "$name" link add br0 type bridge
  ip -n "$name" link set br0 up
  for ((i = 0; i < count; i++)); do
    ip netns add "$name-n$i"
    ip -n "$name" link add "n$i" type veth peer name eth0 netns "$name-n$i"
    ip -n "$name" link set "n$i" master br0 up
    ip -n "$name-n$i" addr add "10.99.0.$((i + 1))/24" dev eth0
    ip -n "$name-n$i" link set eth0 up
    ip -n "$name-n$i" link set lo up
    echo "10.99.0.$((i + 1)) n$i node$i" >>"$state/$name/hosts"
  done
  trap - EXIT
  echo "$name"
}

run() {
  local name=$1 host=$2
  shift 2
  known "$name"
  # Not `ip netns exec`, which mounts another /sys.
  exec nsenter --net="/run/netns/$name-n$host" unshare --uts --mount bash -c '
    hostname "$1"
    mount --bind "$2" /etc/hosts
    mount -t tmpfs -o size=1g tsrun /dev/shm
    shift 2
    exec "$@"' netns-cluster "n$host" "$state/$name/hosts" "$@"
}

alias_host() {
  known "$1"
  local address=$2
  if [[ $2 =~ ^[0-9]+$ ]]; then
    [ "$2" -lt "$(grep -c ' node' "$state/$1/hosts")" ] || fail "there is no host n$2"
    address=10.99.0.$(($2 + 1))
  fi
  echo "$address $3" >>"$state/$1/hosts"
}

relay() {
  local name=$1 host=$2
  shift 2
  known "$name"
  ip -n "$name" link set "n$host" nomaster
  ip -n "$name" link add "r$host" type veth peer name "q$host"
  ip -n "$name" link set "q$host" master br0 up
  ip -n "$name" link set "r$host" up
  exec nsenter --net="/run/netns/$name" node "$here/link-relay.mjs" "n$host" "r$host" "$@"
}

down() {
  local name=$1 namespace
  for namespace in /run/netns/"$name" /run/netns/"$name"-n*; do
    [ -e "$namespace" ] || continue
    # Processes that still run there would keep the namespace alive, so end them first.
    ip netns pids "${namespace##*/}" | xargs -r kill -KILL 2>/dev/null || true
    ip netns del "${namespace##*/}" || true
  done
  rm -rf "${state:?}/$name"
}

clean() {
  local folder owner since
  for folder in "$state"/*/; do
    [ -r "$folder/owner" ] || continue
    read -r owner since <"$folder/owner"
    [ "$(started "$owner")" = "$since" ] || down "$(basename "$folder")"
  done
}

case ${1:-} in
  up | run | relay | down) "$@" ;;
  alias) shift && alias_host "$@" ;;
  address) known "$2" && ip -n "$2-n$3" addr add "$4/24" dev eth0 $([[ $4 != *:* ]] || echo nodad) ;;
  shut) known "$2" && ip -n "$2-n$3" rule add from "$4" ipproto tcp sport "$5" blackhole ;;
  cut) known "$2" && ip -n "$2" link set "n$3" down ;;
  mend) known "$2" && ip -n "$2" link set "n$3" up ;;
  clean) clean ;;
  *) sed -n '2,20s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
