import type { Transport } from '../../transports/transport.ts'
import { frameKinds } from './frame.ts'
import type { FrameWriter, LinkTraffic } from './frame-writer.ts'
import type { EngineMemory } from './memory.ts'
import type { ExposedPayload, Transfer } from './stream.ts'

/** Largest number of bytes to copy at once, so that other messages are not delayed for long. */
const SLICE = 1024 * 1024

interface Get extends ExposedPayload {
  readonly receive: Transfer
  done: number
}

/** Copies large messages out of a peer's heap, in the order in which they were matched. */
export class Gets {
  readonly #transport: Transport
  readonly #memory: EngineMemory
  readonly #peer: number
  readonly #writer: FrameWriter
  readonly #traffic: LinkTraffic
  readonly #queue: Get[] = []
  /** State of the exposed payloads that this rank has not answered, by guard. */
  readonly #open = new Map<number, 'exposed' | 'withdrawn'>()
  /**
   * Receives whose payload was withdrawn during the copy. They wait for the peer's frame that
   * confirms the withdrawal.
   */
  readonly #voided = new Map<number, Transfer>()
  /** Heap offset of a word for copies of the peer's guards. */
  readonly #guardAt: number

  constructor(
    transport: Transport,
    memory: EngineMemory,
    peer: number,
    writer: FrameWriter,
    traffic: LinkTraffic,
  ) {
    this.#transport = transport
    this.#memory = memory
    this.#peer = peer
    this.#writer = writer
    this.#traffic = traffic
    this.#guardAt = memory.takeFrameBlock(0)
  }

  get isEmpty(): boolean {
    return this.#queue.length === 0
  }

  onExposed({ guard }: ExposedPayload): void {
    this.#open.set(guard, 'exposed')
  }

  start(receive: Transfer, { place, guard }: ExposedPayload): void {
    receive.onStarted()
    this.#queue.push({ receive, place, guard, done: 0 })
    if (this.#queue.length === 1 && receive.bytes <= SLICE) this.advance()
  }

  /** Tells the peer that this rank does not need its payload. */
  refuse({ guard }: ExposedPayload): void {
    this.#answer(guard)
  }

  /** Copies the next slice of the oldest message. */
  advance(): void {
    const get = this.#queue[0]
    if (get === undefined) return
    const { receive, place, guard } = get
    if (!receive.cancelled) {
      const length = Math.min(SLICE, receive.bytes - get.done)
      this.#transport.get!(this.#peer, receive.at + get.done, place + get.done, length)
      get.done += length
      this.#traffic.bytesReceived += length
      if (get.done < receive.bytes) return
    }
    this.#queue.shift()
    // If the sender has withdrawn the payload, the copy may be wrong.
    if (receive.cancelled || this.#readGuard(guard) === 1) {
      this.#answer(guard)
      if (!receive.cancelled) receive.onDone()
    } else {
      this.#voided.set(guard, receive)
      if (this.#open.get(guard) === 'withdrawn') this.#endVoided(guard)
    }
  }

  /**
   * Handles the frame that says that a payload was withdrawn. It may arrive long after the guard
   * has changed.
   */
  onWithdrawn(guard: number): void {
    if (!this.#open.has(guard)) return
    this.#open.set(guard, 'withdrawn')
    this.#endVoided(guard)
  }

  #endVoided(guard: number): void {
    const receive = this.#voided.get(guard)
    if (receive === undefined) return
    this.#voided.delete(guard)
    this.#answer(guard)
    if (!receive.cancelled) receive.onWithdrawn()
  }

  #answer(guard: number): void {
    this.#open.delete(guard)
    this.#writer.writeBare(frameKinds.getDone, guard)
  }

  #readGuard(guard: number): number {
    this.#transport.get!(this.#peer, this.#guardAt, guard, 4)
    return Atomics.load(this.#memory.heap.unsigned, this.#guardAt >>> 2)
  }
}
