// A link with faults for the hosts of netns-cluster.sh: it forwards Ethernet frames between two interfaces
// and can delay them, lose some of them, or stall. (netem does this on kernels that have it.)
//
//   node scripts/link-relay.mjs A B [delay MS] [loss PROBABILITY] [stall]
//
// Each line on stdin changes a setting: `delay 50` (milliseconds, each way), `loss 0.01`, `stall` (drops
// all frames), `go` (ends the stall). Prints `ready` when it forwards, and ends when stdin ends.

import { readSync } from 'node:fs'
import koffi from 'koffi'

const ALL_PROTOCOLS = 0x0003 // ETH_P_ALL, in network order below
const AF_PACKET = 17
const SOCK_RAW_NONBLOCK_CLOEXEC = 3 | 0o4000 | 0o2000000
const SOL_PACKET = 263
const PACKET_VNET_HDR = 15
const PACKET_IGNORE_OUTGOING = 23
const POLLIN = 1
/** A frame before segmentation (GSO), with the header that says how to cut it. */
const LARGEST_FRAME = 128 * 1024

const libc = koffi.load('libc.so.6')
const socket = libc.func('int socket(int, int, int)')
const bind = libc.func('int bind(int, const void *, uint)')
const setsockopt = libc.func('int setsockopt(int, int, int, const void *, uint)')
const indexOf = libc.func('uint if_nametoindex(const char *)')
const receive = libc.func('int64_t recv(int, _Out_ void *, size_t, int)')
const send = libc.func('int64_t send(int, const void *, size_t, int)')
const poll = libc.func('int poll(_Inout_ void *, ulong, int)')

const [first, second, ...wishes] = process.argv.slice(2)
let delay = 0
let loss = 0
let stalled = false
for (let i = 0; i < wishes.length; i += wishes[i] === 'stall' || wishes[i] === 'go' ? 1 : 2) {
  obey(`${wishes[i]} ${wishes[i + 1] ?? ''}`)
}

/** Reads frames of one interface for the other. */
const ways = [first, second].map((name) => ({ fd: open(name), queue: [] }))
const fds = Int32Array.of(0, POLLIN, ways[0].fd, POLLIN, ways[1].fd, POLLIN)
const frame = Buffer.alloc(LARGEST_FRAME)
const word = Buffer.alloc(1024)
console.log('ready')

for (;;) {
  const due = Math.min(...ways.map(({ queue }) => queue[0]?.due ?? Infinity))
  const wait = due === Infinity ? -1 : Math.max(0, Math.ceil(due - performance.now()))
  poll(fds, 3, wait)
  if (fds[1] >>> 16 !== 0) {
    const length = readSync(0, word)
    if (length === 0) process.exit(0)
    for (const line of word.toString('utf8', 0, length).split('\n')) obey(line)
  }
  ways.forEach((way, i) => {
    take(way)
    pass(way, ways[1 - i])
  })
}

function open(name) {
  const index = indexOf(name ?? '')
  if (index === 0) throw new Error(`there is no interface ${name}`)
  const fd = check('socket', socket(AF_PACKET, SOCK_RAW_NONBLOCK_CLOEXEC, ALL_PROTOCOLS << 8))
  // Frames keep their offloads (checksum, segmentation).
  for (const option of [PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING]) {
    check('setsockopt', setsockopt(fd, SOL_PACKET, option, Int32Array.of(1), 4))
  }
  const address = Buffer.alloc(20)
  address.writeUInt16LE(AF_PACKET, 0)
  address.writeUInt16BE(ALL_PROTOCOLS, 2)
  address.writeInt32LE(index, 4)
  check('bind', bind(fd, address, address.length))
  return fd
}

function take({ fd, queue }) {
  // A few at a time, so that neither direction starves the other.
  for (let i = 0; i < 64; i++) {
    const length = Number(receive(fd, frame, LARGEST_FRAME, 0))
    if (length <= 0) return
    if (stalled || Math.random() < loss) continue
    queue.push({ due: performance.now() + delay, bytes: Buffer.from(frame.subarray(0, length)) })
  }
}

function pass({ queue }, { fd }) {
  const now = performance.now()
  // Frames that the other interface does not take are lost, as on a real link.
  while (queue.length > 0 && queue[0].due <= now) {
    const { bytes } = queue.shift()
    send(fd, bytes, bytes.length, 0)
  }
}

function obey(line) {
  const [wish, value] = line.trim().split(' ')
  if (wish === 'delay') delay = Number(value)
  else if (wish === 'loss') loss = Number(value)
  else if (wish === 'stall') stalled = true
  else if (wish === 'go') stalled = false
  else if (wish !== '') throw new Error(`unknown wish ${line}`)
}

function check(call, result) {
  if (result < 0) throw new Error(`${call} failed with error number ${koffi.errno()}`)
  return result
}
