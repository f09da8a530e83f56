// This thread of a rank relays the rank's connections to peers, and delays or damages the data that the
// rank sends. Received data is unchanged.
import { Socket } from 'node:net'
import { Transform } from 'node:stream'
import { setTimeout as pause } from 'node:timers/promises'
import { parentPort } from 'node:worker_threads'
import type { divertSocket } from '@tsrun/native'
import type { FaultOrder } from '../../protocol/control.ts'

/** `drop` removes 16 bytes. `truncate` sends 32 bytes, less than a frame header, and then nothing. */
const [DROPPED, LET_THROUGH] = [16, 32]

type Diverted = ReturnType<typeof divertSocket>

/** New connections to relay, and the fault for all relayed connections. */
export interface RelayOrder {
  readonly diverted: readonly Diverted[]
  readonly fault: FaultOrder
}

interface Relay {
  fault: (FaultOrder & { readonly until: number; left: number }) | undefined
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
  const relay: Relay = { fault: undefined }
  relays.add(relay)
  /** Resolves when all data that was delayed so far is sent. */
  let sent = Promise.resolve()
  const disturbed = new Transform({
    transform(bytes: Buffer, _, done) {
      const { fault } = relay
      const now = performance.now()
      if (fault?.kind === 'delay' && now < fault.until) {
        sent = sent.then(async () => {
          await pause(Math.ceil(Math.max(0, now + fault.milliseconds - performance.now())))
          disturbed.push(bytes)
        })
        done()
        return
      }
      void sent.then(() => {
        if (relay.fault?.kind !== 'truncate') {
          done(null, damage(relay, bytes))
          return
        }
        own.destroy()
        disturbed.push(bytes.subarray(0, LET_THROUGH))
        disturbed.push(null)
        peer.once('finish', () => peer.destroy())
      })
    },
    flush(done) {
      void sent.then(() => {
        done()
      })
    },
  })
  own.pipe(disturbed).pipe(peer).pipe(own)
  peer.on('error', () => own.destroy())
  peer.on('close', () => relays.delete(relay))
  // The rank has closed the connection. Discard data for the rank, but send all data from the rank.
  own.on('error', () => peer.unpipe(own).resume())
}

function damage(relay: Relay, bytes: Buffer): Buffer {
  const { fault } = relay
  if (fault?.kind === 'corrupt') {
    relay.fault = undefined
    bytes[0]! ^= 1
  }
  if (fault?.kind !== 'drop') return bytes
  const left = Math.min(fault.left, bytes.length)
  fault.left -= left
  if (fault.left === 0) relay.fault = undefined
  return bytes.subarray(left)
}
