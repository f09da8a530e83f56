import { monotonicNow } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { SpanKind, SpanRecorder } from '@tsrun/telemetry'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import type { Tensor } from '../../backend/tensorflow.ts'
import { BufferPool } from './buffers.ts'

/**
 * A message between neighbours: `forward` takes an activation to the next stage, `backward` its
 * gradient to the previous one.
 */
export interface Message {
  readonly direction: 'forward' | 'backward'
  readonly microbatch: number
}

interface Posted extends Message {
  readonly buffer: Float32Array
  readonly work: Work<unknown>
}

/** Receives that are posted ahead of their use, so that messages find their place at once. */
const LOOKAHEAD = 4

/** Announces the shape of an activation, once; all other tags come from `tagOf`. */
const SHAPE_TAG = 2 ** 30

/**
 * Moves activations and their gradients between a stage and its neighbours, one stage a rank.
 *
 * Direction and micro-batch are the tag, so that no message meets the wrong receive, whatever the
 * schedule. Sends never wait: each leaves from a buffer of its own.
 */
export class Activations {
  readonly #group: ProcessGroup
  readonly #recorder: SpanRecorder
  readonly #pool: BufferPool
  readonly #shapes: { forward?: readonly number[]; backward?: readonly number[] } = {}
  #rows: readonly number[] = []
  #expected: Message[] = []
  #posted: Posted[] = []
  #sent: (Message & { bytes: number })[] = []
  #announced: Work | undefined

  constructor(group: ProcessGroup, recorder: SpanRecorder) {
    this.#group = group
    this.#recorder = recorder
    this.#pool = new BufferPool(group)
  }

  /**
   * Starts a pass: posts the first receives.
   *
   * @param rows - examples of each micro-batch
   * @param expected - what the stage receives in this pass, in the order of use
   */
  async begin(rows: readonly number[], expected: readonly Message[]): Promise<void> {
    this.#rows = rows
    this.#expected = [...expected]
    this.#posted = []
    this.#sent = []
    if (this.#group.rank > 0 && this.#shapes.forward === undefined) {
      const shape = await this.#group.recvObject(this.#group.rank - 1, { tag: SHAPE_TAG })
      this.#shapes.forward = shape as readonly number[]
    }
    this.#post()
  }

  /** Waits until the next expected message is there; then `take` it. */
  async arrive(): Promise<void> {
    const { work, microbatch } = this.#posted[0]!
    if (!work.isCompleted()) {
      const start = monotonicNow()
      await work
      const end = monotonicNow()
      const waited = Math.min(Math.max(0, (work.timing?.started ?? end) - start), end - start)
      this.#recorder.record('wait', start, end, { microbatch, waited })
    }
    await work
  }

  /** The message that has arrived, the caller's to dispose. */
  take(): Tensor {
    const { work, buffer, direction, microbatch } = this.#posted.shift()!
    this.#post()
    this.#record('recv', work, { direction, microbatch, bytes: buffer.byteLength })
    const shape = [this.#rows[microbatch]!, ...this.#shapes[direction]!]
    const tensor = tensorFrom(buffer, shape)
    this.#pool.give(buffer)
    return tensor
  }

  /**
   * Sends a tensor on its way.
   *
   * @returns a promise where its values have to be fetched; the caller may dispose it then, or else
   *   at once
   */
  send(message: Message, tensor: Tensor): void | Promise<void> {
    if (message.direction === 'forward' && this.#shapes.backward === undefined) {
      this.#announce(tensor.shape.slice(1))
    }
    const buffer = this.#pool.take(tensor.size)
    const written = writeTo(tensor, buffer)
    if (written === undefined) this.#sendBuffer(message, buffer)
    return written?.then(() => {
      this.#sendBuffer(message, buffer)
    })
  }

  /** Ends a pass: waits until the neighbours have all that was sent. */
  async end(): Promise<void> {
    await this.#announced
    this.#announced = undefined
    const works = await this.#pool.flush()
    works.forEach((work, at) => {
      this.#record('send', work, this.#sent[at]!)
    })
  }

  dispose(): void {
    this.#pool.dispose()
  }

  #sendBuffer(message: Message, buffer: Float32Array): void {
    const { direction } = message
    const work = this.#group.isend(buffer, this.#peer('send', direction), options(message))
    this.#pool.lend(buffer, work)
    this.#sent.push({ ...message, bytes: buffer.byteLength })
  }

  /** The next stage learns the shape of one example, and this one that of its gradient. */
  #announce(shape: readonly number[]): void {
    this.#shapes.backward = shape
    this.#announced = this.#group.sendObject(shape, this.#group.rank + 1, { tag: SHAPE_TAG })
    this.#post()
  }

  #post(): void {
    while (this.#posted.length < LOOKAHEAD && this.#expected.length > 0) {
      const message = this.#expected[0]!
      const { direction, microbatch } = message
      const shape = this.#shapes[direction]
      if (shape === undefined) return
      this.#expected.shift()
      const length = shape.reduce((product, size) => product * size, this.#rows[microbatch]!)
      const buffer = this.#pool.take(length)
      const work = this.#group.irecv(buffer, this.#peer('recv', direction), options(message))
      this.#posted.push({ ...message, buffer, work })
    }
  }

  #peer(side: 'send' | 'recv', direction: Message['direction']): number {
    return this.#group.rank + ((side === 'send') === (direction === 'forward') ? 1 : -1)
  }

  #record(
    kind: SpanKind & ('send' | 'recv'),
    work: Work<unknown>,
    { direction, microbatch, bytes }: Message & { bytes: number },
  ): void {
    if (work.timing === undefined) return
    const { posted, started, completed } = work.timing
    const peer = this.#group.ranks[this.#peer(kind, direction)]!
    const waited = started - posted
    this.#recorder.record(kind, posted, completed, { microbatch, bytes, peer, waited })
  }
}

function options({ direction, microbatch }: Message): { tag: number; label: string } {
  const what = direction === 'forward' ? 'activation' : 'gradient'
  return {
    tag: 2 * microbatch + (direction === 'forward' ? 0 : 1),
    label: `${what} of micro-batch ${microbatch}`,
  }
}
