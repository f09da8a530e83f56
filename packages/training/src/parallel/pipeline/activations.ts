import { monotonicNow } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { SpanKind, SpanRecorder } from '@tsrun/telemetry'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { BufferPool } from './buffers.ts'
import type { Microbatches } from './microbatches.ts'
import { Shapes } from './shapes.ts'

/**
 * A message between neighbouring stages: `forward` takes an activation to the next stage, `backward`
 * its gradient to the previous one.
 */
export interface Message {
  readonly direction: 'forward' | 'backward'
  /** The stage that it goes to. */
  readonly stage: number
  readonly microbatch: number
}

interface Posted extends Message {
  readonly buffer: Float32Array
  readonly work: Work<unknown>
}

/** Receives that are posted ahead of their use, so that messages find their place at once. */
const LOOKAHEAD = 4

/**
 * Moves activations and their gradients between the stages of a rank and their neighbours.
 *
 * Stage, direction and micro-batch are the tag, so that no message meets the wrong receive, whatever
 * the schedule. Sends never wait: each leaves from a buffer of its own.
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
  /** What one stage of this rank hands to another one of it. */
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
   * Starts a pass: posts the first receives.
   *
   * @param expected - what the stages of this rank receive in this pass, in the order of use
   */
  async begin(batch: Microbatches, expected: readonly Message[]): Promise<void> {
    await this.#shapes.begin(batch)
    this.#rows = batch.rows
    this.#expected = expected.filter((message) => !this.#isOwn(message))
    this.#posted = []
    this.#sent = []
    this.#post()
  }

  /** Waits until a message, the next of those that are expected, is there; then `take` it. */
  async arrive(message: Message): Promise<void> {
    if (this.#isOwn(message)) return
    if (this.#posted.length === 0) {
      await this.#shapes.learn(message)
      this.#post()
    }
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
    const tensor = tensorFrom(buffer, shape)
    this.#pool.give(buffer)
    return tensor
  }

  /**
   * Whether the stage before `stage`, or any before that, learns: otherwise no gradient goes back to
   * it. Known once the first activation has arrived.
   */
  needsGradient(stage: number): boolean {
    return this.#shapes.needsGradient(stage)
  }

  /**
   * Sends a tensor on its way.
   *
   * @param needsGradient - of an activation: whether its gradient is wanted back
   * @returns a promise where its values have to be fetched; the caller may dispose it then, or else
   *   at once
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
    const written = writeTo(tensor, buffer)
    if (written === undefined) this.#sendBuffer(message, buffer)
    return written?.then(() => {
      this.#sendBuffer(message, buffer)
    })
  }

  /** Ends a pass: waits until the neighbours have all that was sent. */
  async end(): Promise<void> {
    await this.#shapes.announced()
    const works = await this.#pool.flush()
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
    if (work.timing === undefined) return
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

/** Micro-batches and stages that fit into a tag of 31 bits. */
const MICROBATCHES = 2 ** 17

function options({ direction, stage, microbatch }: Message): { tag: number; label: string } {
  const what = direction === 'forward' ? 'activation' : 'gradient'
  return {
    tag: 2 * (stage * MICROBATCHES + microbatch) + (direction === 'forward' ? 0 : 1),
    label: `${what} of micro-batch ${microbatch} for stage ${stage}`,
  }
}
