import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import type { Worker } from 'node:worker_threads'
import { createLogger } from '@tsrun/core'
import { divertSocket, shutdownSocket } from '@tsrun/native'
import type { FaultOrder } from '../protocol/control.ts'
import { startThread } from './start-thread.ts'
import type { RelayOrder } from './threads/relay.ts'

/** Milliseconds that the thread needs to send data when its delay is over. */
const MARGIN = 50
let thread: Worker | undefined

/**
 * Delays or damages data that this process sends on its TCP connections to other ranks. A thread relays
 * each connection. This process keeps its descriptor, which becomes one end of a socket pair.
 */
export function disturb(fault: FaultOrder, storePort: number): void {
  const watched = watchedDescriptors()
  const own = connectionsToRanks(storePort).filter((fd) => !watched.has(fd))
  if (thread === undefined && own.length === 0) {
    const problem = 'chaos: this rank has no connection of the transport tcp'
    createLogger('launcher').warn({ kind: fault.kind }, problem)
    return
  }
  thread ??= startThread('relay')
  thread.postMessage({ diverted: own.map(divertSocket), fault } satisfies RelayOrder)
  if (fault.kind === 'delay') waitAtExit(fault)
}

/** The thread ends with the process, so wait until it has sent the delayed data. */
function waitAtExit({ milliseconds, forSeconds }: FaultOrder): void {
  const end = performance.now() + 1000 * forSeconds + milliseconds
  process.once('exit', () => {
    const left = Math.min(milliseconds, end - performance.now())
    if (left > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, left + MARGIN)
  })
}

/** Shuts down the connections to other ranks, in one or both directions. Keeps the store connection. */
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
 * Finds Node's sockets, which are in an epoll set. Node would not notice a replaced socket. The
 * transport `tcp` uses poll, so its descriptors are not included.
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
    // The socket was closed in the meantime.
    return ''
  }
}
