import { monotonicNow } from '@tsrun/core'
import type { PersistentOperation, ProcessGroup } from '@tsrun/distributed'
import {
  timeSpan,
  timeWait,
  type SpanFacts,
  type SpanKind,
  type SpanRecorder,
} from '@tsrun/distributed/record'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { freeAfterRun } from '../group-buffers.ts'
import type { Microbatches } from './microbatches.ts'
import { Shapes, type Message } from './shapes.ts'

/** Exchanges messages between the pipeline stages of this rank and the neighbouring stages. */
export interface StageMessages {
  /**
   * Starts a pass.
   *
   * @param expected - the messages that this rank's stages receive in the pass, in the order in
   *   which they are used
   */
  begin(batch: Microbatches, expected: readonly Message[]): Promise<void>
  /** Waits for the next expected message. `take` then returns its tensor. */
  arrive(message: Message): Promise<void>
  /** Returns the tensor of a message that has arrived; the caller disposes the tensor. */
  take(message: Message): Tensor
  /**
   * Whether any stage before `stage` has parameters. If not, no gradient is sent back. The answer is
   * known once the first activation has arrived.
   */
  needsGradient(stage: number): boolean
  /**
   * Sends an activation or a gradient to another stage.
   *
   * @param needsGradient - for an activation: whether the sender wants its gradient
   * @returns undefined if the caller may dispose the tensor at once; otherwise a promise that
   *   resolves when the caller may dispose it
   */
  send(message: Message, tensor: Tensor, needsGradient?: boolean): void | Promise<void>
  /** Ends a pass: waits until everything has been sent. */
  end(): Promise<void>
  dispose(): void
}

const nothing = (): Promise<void> => Promise.resolve()

/** The `StageMessages` of a stage that has no neighbours. */
export const noMessages: StageMessages = {
  begin: nothing,
  arrive: nothing,
  take: ({ stage }) => {
    throw new Error(`no message for stage ${stage}`)
  },
  needsGradient: () => false,
  send: nothing,
  end: nothing,
  dispose: () => undefined,
}

/** A message: its buffer and the prepared operation that sends or receives it. */
interface PreparedMessage {
  readonly buffer: Float32Array
  readonly operation: PersistentOperation
}

/** The limit on micro-batches, because stage and micro-batch must fit into a 31-bit tag. */
const MICROBATCHES = 2 ** 17

interface Exchanged extends Message, PreparedMessage {}

/**
 * The number of receives that are posted before they are needed, so that messages arrive in their
 * buffers.
 */
const LOOKAHEAD = 4

/**
 * Exchanges activations and their gradients between the pipeline stages of this rank and the neighbouring
 * stages.
 *
 * The tag of a message encodes stage, direction and micro-batch, so that messages match their receives in
 * every schedule. A send never waits for another send, because each one uses its own buffer.
 */
export class Activations implements StageMessages {
  readonly #group: ProcessGroup
  readonly #placement: readonly number[]
  readonly #recorder: SpanRecorder
  readonly #messages: PreparedMessages
  readonly #shapes: Shapes
  /** The number of tensor rows of each micro-batch. An empty micro-batch has one placeholder row. */
  #rows: readonly number[] = []
  #expected: Message[] = []
  #posted: Exchanged[] = []
  #sent: Exchanged[] = []
  /** Tensors that one stage of this rank passed to another stage of this rank. */
  readonly #handed = new Map<string, Tensor>()

  /** @param placement - the rank of each stage */
  constructor(group: ProcessGroup, placement: readonly number[], recorder: SpanRecorder) {
    this.#group = group
    this.#placement = placement
    this.#recorder = recorder
    this.#messages = new PreparedMessages(group)
    this.#shapes = new Shapes(group, placement)
  }

  async begin(batch: Microbatches, expected: readonly Message[]): Promise<void> {
    await this.#shapes.begin(batch)
    this.#rows = batch.rows.map((count) => Math.max(1, count))
    this.#expected = expected.filter((message) => !this.#isOwn(message))
    this.#posted = []
    this.#sent = []
    this.#post()
  }

  async arrive(message: Message): Promise<void> {
    if (this.#isOwn(message)) return
    if (this.#posted.length === 0) {
      await this.#shapes.learn(message)
      this.#post()
    }
    const { operation, microbatch } = this.#posted[0]!
    const isHere = timeSpan(this.#recorder, 'call', { name: 'poll', microbatch }, () =>
      operation.isCompleted(),
    )
    const start = monotonicNow()
    await operation.done()
    if (isHere) return
    const end = monotonicNow()
    const waited = Math.min(Math.max(0, (operation.timing?.started ?? end) - start), end - start)
    this.#recorder.record('wait', start, end, { microbatch, waited })
  }

  take(message: Message): Tensor {
    if (this.#isOwn(message)) {
      const tensor = this.#handed.get(keyOf(message))!
      this.#handed.delete(keyOf(message))
      return tensor
    }
    const received = this.#posted.shift()!
    const { buffer } = received
    this.#post()
    this.#record('recv', received)
    const shape = [this.#rows[message.microbatch]!, ...this.#shapes.of(message)!]
    const tensor = timeSpan(this.#recorder, 'unpack', factsOf(message, buffer), () =>
      tensorFrom(buffer, shape),
    )
    this.#messages.release(received)
    return tensor
  }

  needsGradient(stage: number): boolean {
    return this.#shapes.needsGradient(stage)
  }

  send(message: Message, tensor: Tensor, needsGradient = false): void | Promise<void> {
    const announced =
      message.direction === 'forward' && this.#shapes.announce(message, tensor, needsGradient)
    if (announced) this.#post()
    if (this.#isOwn(message)) {
      this.#handed.set(keyOf(message), tf.keep(tf.clone(tensor)))
      return undefined
    }
    const sent = { ...message, ...this.#prepared(message, tensor.size) }
    this.#sent.push(sent)
    const written = timeSpan(this.#recorder, 'pack', factsOf(message, sent.buffer), () =>
      writeTo(tensor, sent.buffer),
    )
    if (written === undefined) this.#messages.send(sent)
    return written?.then(() => {
      this.#messages.send(sent)
    })
  }

  async end(): Promise<void> {
    await timeWait(this.#recorder, { name: 'sends' }, async () => {
      await this.#shapes.announced()
      for (const { operation } of this.#sent) await operation.done()
    })
    for (const sent of this.#sent) this.#record('send', sent)
  }

  dispose(): void {
    for (const tensor of this.#handed.values()) tensor.dispose()
    this.#handed.clear()
    this.#shapes.dispose()
    this.#messages.dispose()
  }

  #isOwn(message: Message): boolean {
    return this.#source(message) === this.#placement[message.stage]
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
      const posted = this.#prepared(message, length)
      this.#messages.receive(posted)
      this.#posted.push({ ...message, ...posted })
    }
  }

  #source({ direction, stage }: Message): number {
    return this.#placement[direction === 'forward' ? stage - 1 : stage + 1]!
  }

  #prepared(message: Message, length: number): PreparedMessage {
    const { direction, stage, microbatch } = message
    const tag = 2 * (stage * MICROBATCHES + microbatch) + (direction === 'forward' ? 0 : 1)
    return this.#messages.take(tag, length, (buffer) => {
      const what = direction === 'forward' ? 'activation' : 'gradient'
      const label = `${what} of micro-batch ${microbatch} for stage ${stage}`
      const to = this.#placement[stage]!
      return to === this.#group.rank
        ? this.#group.recvInit(buffer, this.#source(message), { tag, label })
        : this.#group.sendInit(buffer, to, { tag, label })
    })
  }

  #record(kind: SpanKind & ('send' | 'recv'), { operation, buffer, ...message }: Exchanged): void {
    const { timing } = operation
    // If the recorder is the group's own, the group records the operations itself.
    if (timing === undefined || this.#recorder === this.#group.spans) return
    const { microbatch, stage } = message
    const { posted, started, completed } = timing
    const other = kind === 'send' ? this.#placement[stage]! : this.#source(message)
    const peer = this.#group.ranks[other]!
    const facts = { stage, microbatch, bytes: buffer.byteLength, peer, waited: started - posted }
    this.#recorder.record(kind, posted, completed, facts)
  }
}

function keyOf({ direction, stage, microbatch }: Message): string {
  return `${direction} ${stage} ${microbatch}`
}

function factsOf({ stage, microbatch }: Message, { byteLength }: Float32Array): SpanFacts {
  return { stage, microbatch, bytes: byteLength }
}

/** A buffer of the pool with its prepared operations. Only one operation uses the buffer at a time. */
interface PooledBuffer {
  readonly buffer: Float32Array
  readonly operations: Map<number, PersistentOperation>
  /** The operation that is using the buffer; undefined while the buffer is free. */
  current: PersistentOperation | undefined
  /** Whether `current` is a send. The buffer of a send is free again when the send ends. */
  isSending: boolean
}

/**
 * The float32 messages of a pipeline, in the arena of its group. All passes exchange messages with
 * the same keys and lengths, so buffers and prepared operations are reused.
 */
export class PreparedMessages {
  readonly #group: ProcessGroup
  readonly #pool = new Map<number, PooledBuffer[]>()

  constructor(group: ProcessGroup) {
    this.#group = group
  }

  /**
   * Returns a message with a free buffer of undefined contents, for `send` or `receive`.
   *
   * @param key - identifies the message; the same in every pass
   * @param prepare - prepares the message's operation for a buffer; called once per buffer and key
   */
  take(
    key: number,
    length: number,
    prepare: (buffer: Float32Array) => PersistentOperation,
  ): PreparedMessage {
    const pooled = this.#freeBuffer(length)
    let operation = pooled.operations.get(key)
    if (operation === undefined) pooled.operations.set(key, (operation = prepare(pooled.buffer)))
    pooled.current = operation
    return { buffer: pooled.buffer, operation }
  }

  /** Sends a message. Its buffer stays in use until the send completes. */
  send(message: PreparedMessage): void {
    message.operation.start()
    this.#pooledOf(message).isSending = true
  }

  /** Receives a message. Its buffer stays in use until `release`. */
  receive({ operation }: PreparedMessage): void {
    operation.start()
  }

  /** Returns the buffer of a received message to the pool. */
  release(message: PreparedMessage): void {
    this.#pooledOf(message).current = undefined
  }

  /** Frees each buffer as soon as no message is using it. */
  dispose(): void {
    for (const { buffer, operations, current } of [...this.#pool.values()].flat()) {
      const free = (): void => {
        this.#group.free(buffer)
      }
      for (const operation of operations.values()) {
        freeAfterRun(operation, operation === current ? free : undefined)
      }
      if (current === undefined) free()
    }
    this.#pool.clear()
  }

  #freeBuffer(length: number): PooledBuffer {
    let pool = this.#pool.get(length)
    if (pool === undefined) this.#pool.set(length, (pool = []))
    let pooled = pool.find(
      ({ current, isSending }) => current === undefined || (isSending && current.isCompleted()),
    )
    if (pooled === undefined) {
      const buffer = this.#group.allocUnsafe('float32', length)
      pooled = { buffer, operations: new Map(), current: undefined, isSending: false }
      pool.push(pooled)
    }
    pooled.isSending = false
    return pooled
  }

  #pooledOf({ buffer, operation }: PreparedMessage): PooledBuffer {
    return this.#pool.get(buffer.length)!.find(({ current }) => current === operation)!
  }
}
