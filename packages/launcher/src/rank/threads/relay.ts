// The thread of a rank that relays its connections to peers in order to disturb them; see `disturb`. It
// delays or damages data that the rank sends. Received data is unchanged.
import { Socket } from 'node:net'
import { parentPort } from 'node:worker_threads'
import type { divertSocket } from '@tsrun/native'
import type { FaultOrder } from '../../protocol/control.ts'

/**
 * The bytes that `drop` removes, and the bytes after which `truncate` ends the stream. Both are shorter
 * than a frame header.
 */
const [DROPPED, LET_THROUGH] = [16, 32]
/** Maximum bytes of a connection that the thread holds before it stops reading. */
const MOST_HELD = 2 ** 20

type Diverted = ReturnType<typeof divertSocket>

/** Connections to relay from now on, and a fault for all of them. */
export interface RelayOrder {
  readonly diverted: readonly Diverted[]
  readonly fault: FaultOrder
}

interface Relay {
  fault: (FaultOrder & { readonly until: number; left: number }) | undefined
  isCut: boolean
  readonly own: Socket
  readonly peer: Socket
  /** Bytes that were read and not yet sent. */
  held: number
  /** When data that is read now must be sent. */
  due: number
  readonly queue: { readonly due: number; readonly run: () => void }[]
}

const relays = new Set<Relay>()
parentPort!.on('message', ({ diverted, fault }: RelayOrder) => {
  diverted.forEach(open)
  const until = performance.now() + 1000 * fault.forSeconds
  for (const relay of relays) relay.fault = { ...fault, until, left: DROPPED }
})

function open({ inner, outer }: Diverted): void {
  const [own, peer] = [inner, outer].map(
    (fd) => new Socket({ fd, readable: true, writable: true, allowHalfOpen: true }),
  ) as [Socket, Socket]
  const relay: Relay = { fault: undefined, isCut: false, own, peer, held: 0, due: 0, queue: [] }
  relays.add(relay)
  peer.pipe(own)
  peer.on('error', () => own.destroy())
  peer.on('close', () => relays.delete(relay))
  // Data that this process sent before closing must still arrive.
  own.on('error', () => peer.unpipe(own).resume())
  own.on('end', () => {
    later(relay, () => peer.end())
  })
  own.on('data', (bytes: Buffer) => {
    passOn(relay, bytes)
  })
}

function passOn(relay: Relay, bytes: Buffer): void {
  const { own, peer } = relay
  const passed = damage(relay, bytes)
  relay.held += passed.length
  if (relay.held > MOST_HELD) own.pause()
  later(relay, () =>
    peer.write(passed, () => {
      relay.held -= passed.length
      if (relay.held <= MOST_HELD) own.resume()
    }),
  )
  if (!relay.isCut) return
  own.destroy()
  later(relay, () => peer.end(() => peer.destroy()))
}

function damage(relay: Relay, bytes: Buffer): Buffer {
  const { fault } = relay
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
    bytes[0]! ^= 1
    return bytes
  }
  relay.isCut = true
  return bytes.subarray(0, LET_THROUGH)
}

function later(relay: Relay, run: () => void): void {
  relay.queue.push({ due: relay.due, run })
  if (relay.queue.length === 1) passDue(relay)
}

function passDue(relay: Relay): void {
  for (let next; (next = relay.queue[0]) !== undefined; relay.queue.shift()) {
    const wait = next.due - performance.now()
    if (wait > 0) {
      setTimeout(passDue, Math.ceil(wait), relay)
      return
    }
    next.run()
  }
}
