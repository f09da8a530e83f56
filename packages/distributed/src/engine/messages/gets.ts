import { frameKinds } from './frame.ts'
import type { Link } from './link.ts'
import type { ExposedPayload, Transfer } from './stream.ts'

/** Largest number of bytes to copy at once, so that other messages are not delayed for long. */
const SLICE = 1024 * 1024

interface Get extends ExposedPayload {
  readonly receive: Transfer
  done: number
}

/** Copies large messages out of a peer's heap, in the order in which they were matched. */
export function createGets({ transport, memory, peer, writer, traffic }: Link) {
  const queue: Get[] = []
  /** State of the exposed payloads that this rank has not answered, by guard. */
  const open = new Map<number, 'exposed' | 'withdrawn'>()
  /** Receives whose payload was withdrawn during the copy, until a frame confirms that. */
  const voided = new Map<number, Transfer>()
  /** Heap offset of a word for copies of the peer's guards. */
  const guardAt = memory.takeFrameBlock(0)

  /** Copies the next slice of the oldest message. */
  const advance = (): void => {
    const get = queue[0]
    if (get === undefined) return
    const { receive, place, guard } = get
    if (!receive.cancelled) {
      const length = Math.min(SLICE, receive.bytes - get.done)
      transport.get!(peer, receive.at + get.done, place + get.done, length)
      get.done += length
      traffic.bytesReceived += length
      if (get.done < receive.bytes) return
    }
    queue.shift()
    // If the sender has withdrawn the payload, the copy may be wrong.
    if (receive.cancelled || readGuard(guard) === 1) {
      answer(guard)
      if (!receive.cancelled) receive.onDone()
    } else {
      voided.set(guard, receive)
      if (open.get(guard) === 'withdrawn') endVoided(guard)
    }
  }

  const endVoided = (guard: number): void => {
    const receive = voided.get(guard)
    if (receive === undefined) return
    voided.delete(guard)
    answer(guard)
    if (!receive.cancelled) receive.onWithdrawn()
  }

  const answer = (guard: number): void => {
    open.delete(guard)
    writer.writeBare(frameKinds.getDone, guard)
  }

  const readGuard = (guard: number): number => {
    transport.get!(peer, guardAt, guard, 4)
    return Atomics.load(memory.heap.unsigned, guardAt >>> 2)
  }

  return {
    isEmpty: () => queue.length === 0,
    onExposed({ guard }: ExposedPayload): void {
      open.set(guard, 'exposed')
    },
    start(receive: Transfer, { place, guard }: ExposedPayload): void {
      receive.onStarted()
      queue.push({ receive, place, guard, done: 0 })
      if (queue.length === 1 && receive.bytes <= SLICE) advance()
    },
    /** Tells the peer that this rank does not need its payload. */
    refuse: answer,
    advance,
    /** Handles a withdrawn payload. The frame may arrive long after the guard has changed. */
    onWithdrawn(guard: number): void {
      if (!open.has(guard)) return
      open.set(guard, 'withdrawn')
      endVoided(guard)
    },
  }
}
