import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import { createLogger } from '@tsrun/core'
import { divertSocket, shutdownSocket } from '@tsrun/native'
import type { FaultOrder } from './control-message.ts'

/** Bytes that `drop` leaves out, and that `truncate` lets through: less than the header of a frame. */
const [DROPPED, LET_THROUGH] = [16, 32]
/** Milliseconds for the thread to pass on what is due. */
const MARGIN = 50
/** Bytes that the thread holds of a connection before it reads no more. */
const MOST_HELD = 2 ** 20

/**
 * The thread that passes on what comes from this process and from its peers, as source: see `watchLauncher`.
 * What this process sends is held back or damaged; what it receives stays as it is.
 */
const program = `
  const { Socket } = require('node:net')
  const { parentPort } = require('node:worker_threads')
  const relays = new Set()
  parentPort.on('message', ({ diverted, fault }) => {
    diverted.forEach(open)
    const until = performance.now() + 1000 * fault.forSeconds
    for (const relay of relays) relay.fault = { ...fault, until, left: ${DROPPED} }
  })
  const open = ({ inner, outer }) => {
    const [own, peer] = [inner, outer].map((fd) =>
      new Socket({ fd, readable: true, writable: true, allowHalfOpen: true }))
    const relay = { fault: undefined, isCut: false, own, peer, held: 0, due: 0, queue: [] }
    relays.add(relay)
    peer.pipe(own)
    peer.on('error', () => own.destroy())
    peer.on('close', () => relays.delete(relay))
    // what this process has sent before it closed its end still has to arrive
    own.on('error', () => peer.unpipe(own).resume())
    own.on('end', () => later(relay, () => peer.end()))
    own.on('data', (bytes) => {
      const passed = damage(relay, bytes)
      relay.held += passed.length
      if (relay.held > ${MOST_HELD}) own.pause()
      later(relay, () => peer.write(passed, () => {
        relay.held -= passed.length
        if (relay.held <= ${MOST_HELD}) own.resume()
      }))
      if (relay.isCut) {
        own.destroy()
        later(relay, () => peer.end(() => peer.destroy()))
      }
    })
  }
  const damage = (relay, bytes) => {
    const { fault, own, peer } = relay
    if (fault === undefined) return bytes
    if (fault.kind === 'delay') {
      const now = performance.now()
      if (now < fault.until) relay.due = now + fault.milliseconds
      return bytes
    }
    if (fault.kind === 'drop') {
      const left = Math.min(fault.left, bytes.length)
      fault.left -= left
      if (fault.left === 0) relay.fault = undefined
      return bytes.subarray(left)
    }
    relay.fault = undefined
    if (fault.kind === 'corrupt') {
      bytes[0] ^= 1
      return bytes
    }
    relay.isCut = true
    return bytes.subarray(0, ${LET_THROUGH})
  }
  /** In the order of the calls. */
  const later = (relay, run) => {
    relay.queue.push({ due: relay.due, run })
    if (relay.queue.length === 1) pass(relay)
  }
  const pass = (relay) => {
    for (let next; (next = relay.queue[0]) !== undefined; relay.queue.shift()) {
      const wait = next.due - performance.now()
      if (wait > 0) return void setTimeout(pass, Math.ceil(wait), relay)
      next.run()
    }
  }
`

let thread: Worker | undefined

/**
 * Holds back or damages what this process sends on its TCP connections to other ranks. A thread comes between
 * each of them and this process, which keeps its descriptor: from now on, that is a pair of sockets.
 */
export function disturb(fault: FaultOrder, storePort: number): void {
  const watched = watchedDescriptors()
  const own = connectionsToRanks(storePort).filter((fd) => !watched.has(fd))
  if (thread === undefined && own.length === 0) {
    const problem = 'chaos: this rank has no connection of the transport tcp'
    createLogger('launcher').warn({ kind: fault.kind }, problem)
    return
  }
  thread ??= startThread()
  thread.postMessage({ diverted: own.map(divertSocket), fault })
  if (fault.kind === 'delay') waitAtExit(fault)
}

function startThread(): Worker {
  const worker = new Worker(program, { eval: true, execArgv: [], env: {} })
  worker.on('error', () => undefined).unref()
  return worker
}

/** The thread ends with the process: what it holds back must have gone by then. */
function waitAtExit({ milliseconds, forSeconds }: FaultOrder): void {
  const end = performance.now() + 1000 * forSeconds + milliseconds
  process.once('exit', () => {
    const left = Math.min(milliseconds, end - performance.now())
    if (left > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, left + MARGIN)
  })
}

/** Ends the connections to other ranks, in both directions or one; that to the store stays. */
export function disconnect(storePort: number, which: 'both' | 'sending'): void {
  for (const fd of connectionsToRanks(storePort)) shutdownSocket(fd, which)
}

function connectionsToRanks(storePort: number): number[] {
  const connected = new Map<string, number>()
  for (const table of ['tcp', 'tcp6']) {
    const [, ...lines] = readFileSync(`/proc/self/net/${table}`, 'latin1').trim().split('\n')
    for (const line of lines) {
      const fields = line.trim().split(/\s+/)
      const isEstablished = fields[3] === '01'
      if (isEstablished) connected.set(fields[9]!, Number.parseInt(fields[2]!.split(':')[1]!, 16))
    }
  }
  return readdirSync('/proc/self/fd').flatMap((name) => {
    const [, inode = ''] = /^socket:\[(\d+)\]$/.exec(targetOf(`/proc/self/fd/${name}`)) ?? []
    const port = connected.get(inode)
    return port === undefined || port === storePort ? [] : [Number(name)]
  })
}

/**
 * The descriptors that an epoll watches, as those of Node: another socket in their place would not be
 * noticed. The transport `tcp` uses poll.
 */
function watchedDescriptors(): Set<number> {
  const watched = new Set<number>()
  for (const name of readdirSync('/proc/self/fd')) {
    if (targetOf(`/proc/self/fd/${name}`) !== 'anon_inode:[eventpoll]') continue
    const facts = readFileSync(`/proc/self/fdinfo/${name}`, 'latin1')
    for (const [, fd] of facts.matchAll(/^tfd:\s*(\d+)/gm)) watched.add(Number(fd))
  }
  return watched
}

function targetOf(link: string): string {
  try {
    return readlinkSync(link)
  } catch {
    // It was closed in the meantime.
    return ''
  }
}
