import { monotonicNow } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import {
  timeSpan,
  timeWait,
  type SpanFacts,
  type SpanKind,
  type SpanRecorder,
} from '@tsrun/telemetry'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { BufferPool } from '../group-buffers.ts'
import type { Microbatches } from './microbatches.ts'
import { Shapes, type Message } from './shapes.ts'

interface Posted extends Message {
  readonly buffer: Float32Array
  readonly work: Work<unknown>
}

/** The number of receives that are posted ahead, so that messages have a buffer when they arrive. */
const LOOKAHEAD = 4

/**
 * Exchanges activations and their gradients between the stages of this rank and their neighbours.
 *
 * The tag of a message consists of stage, direction and micro-batch, so that it matches the right
 * receive with any schedule. Sends never wait, because each has a buffer of its own.
 */
export class Activations {
  readonly #group: ProcessGroup
  readonly #placement: readonly number[]
  readonly #recorder: SpanRecorder
  readonly #pool: BufferPool
  readonly #shapes: Shapes
  #rows: readonly number[] = []
  #expected: Message[] = []
  #posted: Posted[] = []
  #sent: (Message & { bytes: number })[] = []
  /** Tensors from one stage of this rank to another. */
  readonly #handed = new Map<string, Tensor>()

  /** @param placement - the rank of each stage */
  constructor(group: ProcessGroup, placement: readonly number[], recorder: SpanRecorder) {
    this.#group = group
    this.#placement = placement
    this.#recorder = recorder
    this.#pool = new BufferPool(group)
    this.#shapes = new Shapes(group, placement)
  }

  /**
   * Starts a pass, and posts the first receives.
   *
   * @param expected - the messages to the stages of this rank in this pass, in the order of use
   */
  async begin(batch: Microbatches, expected: readonly Message[]): Promise<void> {
    await this.#shapes.begin(batch)
    this.#rows = batch.rows
    this.#expected = expected.filter((message) => !this.#isOwn(message))
    this.#posted = []
    this.#sent = []
    this.#post()
  }

  /** Waits for a message, the next of the expected ones; `take` returns it afterwards. */
  async arrive(message: Message): Promise<void> {
    if (this.#isOwn(message)) return
    if (this.#posted.length === 0) {
      await this.#shapes.learn(message)
      this.#post()
    }
    const { work, microbatch } = this.#posted[0]!
    const isHere = timeSpan(this.#recorder, 'call', { name: 'poll', microbatch }, () =>
      work.isCompleted(),
    )
    if (!isHere) {
      const start = monotonicNow()
      await work
      const end = monotonicNow()
      const waited = Math.min(Math.max(0, (work.timing?.started ?? end) - start), end - start)
      this.#recorder.record('wait', start, end, { microbatch, waited })
    }
    await work
  }

  /** The message that has arrived, which the caller disposes. */
  take(message: Message): Tensor {
    if (this.#isOwn(message)) {
      const tensor = this.#handed.get(keyOf(message))!
      this.#handed.delete(keyOf(message))
      return tensor
    }
    const { work, buffer } = this.#posted.shift()!
    this.#post()
    this.#record('recv', work, { ...message, bytes: buffer.byteLength })
    const shape = [this.#rows[message.microbatch]!, ...this.#shapes.of(message)!]
    const tensor = timeSpan(this.#recorder, 'unpack', factsOf(message, buffer), () =>
      tensorFrom(buffer, shape),
    )
    this.#pool.give(buffer)
    return tensor
  }

  /**
   * Whether any stage before `stage` has parameters; if not, no gradient goes back. Known once the first
   * activation has arrived.
   */
  needsGradient(stage: number): boolean {
    return this.#shapes.needsGradient(stage)
  }

  /**
   * Sends a tensor.
   *
   * @param needsGradient - for an activation: whether its gradient is wanted
   * @returns a promise if the values have to be fetched, after which the caller may dispose the tensor;
   *   otherwise undefined, and the caller may dispose it at once
   */
  send(message: Message, tensor: Tensor, needsGradient = false): void | Promise<void> {
    const announced =
      message.direction === 'forward' && this.#shapes.announce(message, tensor, needsGradient)
    if (announced) this.#post()
    if (this.#isOwn(message)) {
      this.#handed.set(keyOf(message), tf.keep(tf.clone(tensor)))
      return undefined
    }
    const buffer = this.#pool.take(tensor.size)
    const written = timeSpan(this.#recorder, 'pack', factsOf(message, buffer), () =>
      writeTo(tensor, buffer),
    )
    if (written === undefined) this.#sendBuffer(message, buffer)
    return written?.then(() => {
      this.#sendBuffer(message, buffer)
    })
  }

  /** Ends a pass: waits until everything has been sent. */
  async end(): Promise<void> {
    const works = await timeWait(this.#recorder, { name: 'sends' }, async () => {
      await this.#shapes.announced()
      return await this.#pool.flush()
    })
    works.forEach((work, at) => {
      this.#record('send', work, this.#sent[at]!)
    })
  }

  dispose(): void {
    for (const tensor of this.#handed.values()) tensor.dispose()
    this.#handed.clear()
    this.#shapes.dispose()
    this.#pool.dispose()
  }

  #isOwn(message: Message): boolean {
    return this.#source(message) === this.#placement[message.stage]
  }

  #sendBuffer(message: Message, buffer: Float32Array): void {
    const work = this.#group.isend(buffer, this.#placement[message.stage]!, options(message))
    this.#pool.lend(buffer, work)
    this.#sent.push({ ...message, bytes: buffer.byteLength })
  }

  #post(): void {
    while (this.#posted.length < LOOKAHEAD && this.#expected.length > 0) {
      const message = this.#expected[0]!
      const shape = this.#shapes.of(message)
      if (shape === undefined) return
      this.#expected.shift()
      const { direction, stage } = message
      if (direction === 'backward' && !this.needsGradient(stage + 1)) continue
      const length = this.#rows[message.microbatch]! * sizeOf(shape)
      const buffer = this.#pool.take(length)
      const work = this.#group.irecv(buffer, this.#source(message), options(message))
      this.#posted.push({ ...message, buffer, work })
    }
  }

  #source({ direction, stage }: Message): number {
    return this.#placement[direction === 'forward' ? stage - 1 : stage + 1]!
  }

  #record(
    kind: SpanKind & ('send' | 'recv'),
    work: Work<unknown>,
    message: Message & { bytes: number },
  ): void {
    // the group records every operation itself
    if (work.timing === undefined || this.#recorder === this.#group.spans) return
    const { microbatch, bytes, stage } = message
    const { posted, started, completed } = work.timing
    const other = kind === 'send' ? this.#placement[stage]! : this.#source(message)
    const peer = this.#group.ranks[other]!
    const waited = started - posted
    this.#recorder.record(kind, posted, completed, { stage, microbatch, bytes, peer, waited })
  }
}

function keyOf({ direction, stage, microbatch }: Message): string {
  return `${direction} ${stage} ${microbatch}`
}

function factsOf({ stage, microbatch }: Message, { byteLength }: Float32Array): SpanFacts {
  return { stage, microbatch, bytes: byteLength }
}

/** The most micro-batches, so that their number and that of the stage fit into a tag of 31 bits. */
const MICROBATCHES = 2 ** 17

function options({ direction, stage, microbatch }: Message): { tag: number; label: string } {
  const what = direction === 'forward' ? 'activation' : 'gradient'
  return {
    tag: 2 * (stage * MICROBATCHES + microbatch) + (direction === 'forward' ? 0 : 1),
    label: `${what} of micro-batch ${microbatch} for stage ${stage}`,
  }
}
