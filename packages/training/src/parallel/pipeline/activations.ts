import { argumentError, monotonicNow } from '@tsrun/core'
import type { PersistentOperation, ProcessGroup, Work } from '@tsrun/distributed'
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

/**
 * A message between neighbouring stages. `forward` messages contain an activation for the next stage, and
 * `backward` messages a gradient for the previous stage.
 */
export interface Message {
  readonly direction: 'forward' | 'backward'
  /** The number of the stage that receives the message. */
  readonly stage: number
  readonly microbatch: number
}

export type StageMessages = ReturnType<typeof createActivations>

/** A message: its buffer and the prepared operation that sends or receives it. */
interface PreparedMessage {
  readonly buffer: Float32Array
  readonly operation: PersistentOperation
  readonly pooled: PooledBuffer
}

/** The limit on micro-batches, because stage and micro-batch must fit into a 31-bit tag. */
const MICROBATCHES = 2 ** 17

interface Exchanged extends Message, PreparedMessage {}

/** The number of receives that are posted before they are needed, so that messages arrive in their buffers. */
const LOOKAHEAD = 4

/**
 * Exchanges activations and their gradients between the pipeline stages of this rank and the neighbouring
 * stages.
 *
 * The tag of a message encodes stage, direction and micro-batch, so that messages match their receives in
 * every schedule. A send never waits for another send, because each one uses its own buffer.
 */
export function createActivations(
  group: ProcessGroup,
  placement: readonly number[],
  recorder: SpanRecorder,
) {
  const messages = preparedMessages(group)
  const shapes = createShapes(group, placement)
  /** The number of tensor rows of each micro-batch. An empty micro-batch has one placeholder row. */
  let rows: readonly number[] = []
  let expected: Message[] = []
  let posted: Exchanged[] = []
  let sent: Exchanged[] = []
  /** Tensors that one stage of this rank passed to another stage of this rank. */
  const handed = new Map<number, Tensor>()

  const sourceOf = ({ direction, stage }: Message) =>
    placement[direction === 'forward' ? stage - 1 : stage + 1]!
  const isOwn = (message: Message) => sourceOf(message) === placement[message.stage]
  const prepared = (message: Message, length: number): Exchanged => {
    const { direction, stage, microbatch } = message
    const tag = tagOf(message)
    const operation = messages.take(tag, length, (buffer) => {
      const what = direction === 'forward' ? 'activation' : 'gradient'
      const label = `${what} of micro-batch ${microbatch} for stage ${stage}`
      const to = placement[stage]!
      return to === group.rank
        ? group.recvInit(buffer, sourceOf(message), { tag, label })
        : group.sendInit(buffer, to, { tag, label })
    })
    return { ...message, ...operation }
  }
  const post = () => {
    while (posted.length < LOOKAHEAD && expected.length > 0) {
      const message = expected[0]!
      const shape = shapes.of(message)
      if (shape === undefined) return
      expected.shift()
      const { direction, stage } = message
      if (direction === 'backward' && !shapes.needsGradient(stage + 1)) continue
      const next = prepared(message, rows[message.microbatch]! * sizeOf(shape))
      next.operation.start()
      posted.push(next)
    }
  }
  const record = (
    kind: SpanKind & ('send' | 'recv'),
    { operation, buffer, ...message }: Exchanged,
  ) => {
    const { timing } = operation
    // If the recorder is the group's own, the group records the operations itself.
    if (timing === undefined || recorder === group.spans) return
    const other = kind === 'send' ? placement[message.stage]! : sourceOf(message)
    recorder.record(kind, timing.posted, timing.completed, {
      ...factsOf(message, buffer),
      peer: group.ranks[other]!,
      waited: timing.started - timing.posted,
    })
  }

  return {
    /** Starts a pass. @param coming - the messages to this rank in the pass, in the order of their use */
    async begin(batch: Microbatches, coming: readonly Message[]) {
      await shapes.begin(batch)
      rows = batch.rows.map((count) => Math.max(1, count))
      expected = coming.filter((message) => !isOwn(message))
      posted = []
      sent = []
      post()
    },

    /** Waits for the next expected message. `take` then returns its tensor. */
    async arrive(message: Message) {
      if (isOwn(message)) return
      if (posted.length === 0) {
        await shapes.learn(message)
        post()
      }
      const { operation, microbatch } = posted[0]!
      const isHere = timeSpan(recorder, 'call', { name: 'poll', microbatch }, () =>
        operation.isCompleted(),
      )
      const start = monotonicNow()
      await operation.done()
      if (isHere) return
      const end = monotonicNow()
      const waited = Math.min(Math.max(0, (operation.timing?.started ?? end) - start), end - start)
      recorder.record('wait', start, end, { microbatch, waited })
    },

    /** Returns the tensor of a message that has arrived; the caller disposes the tensor. */
    take(message: Message) {
      if (isOwn(message)) {
        const tag = tagOf(message)
        const tensor = handed.get(tag)!
        handed.delete(tag)
        return tensor
      }
      const received = posted.shift()!
      const { buffer } = received
      post()
      record('recv', received)
      const shape = [rows[message.microbatch]!, ...shapes.of(message)!]
      const tensor = timeSpan(recorder, 'unpack', factsOf(message, buffer), () =>
        tensorFrom(buffer, shape),
      )
      messages.release(received)
      return tensor
    },

    /**
     * Whether any stage before `stage` has parameters. If not, no gradient is sent back. The answer is
     * known once the first activation has arrived.
     */
    needsGradient: shapes.needsGradient,

    /**
     * Sends an activation or a gradient to another stage.
     *
     * @param needsGradient - for an activation: whether the sender wants its gradient
     * @returns a promise that resolves when the caller may dispose the tensor; undefined if it
     *   may do so at once
     */
    send(message: Message, tensor: Tensor, needsGradient = false) {
      const announced =
        message.direction === 'forward' && shapes.announce(message, tensor, needsGradient)
      if (announced) post()
      if (isOwn(message)) {
        handed.set(tagOf(message), tf.keep(tf.clone(tensor)))
        return undefined
      }
      const next = prepared(message, tensor.size)
      sent.push(next)
      const written = timeSpan(recorder, 'pack', factsOf(message, next.buffer), () =>
        writeTo(tensor, next.buffer),
      )
      if (written === undefined) messages.send(next)
      return written?.then(() => {
        messages.send(next)
      })
    },

    /** Ends a pass: waits until everything has been sent. */
    async end() {
      await timeWait(recorder, { name: 'sends' }, async () => {
        await shapes.announced()
        for (const { operation } of sent) await operation.done()
      })
      for (const each of sent) record('send', each)
    },

    dispose() {
      for (const tensor of handed.values()) tensor.dispose()
      handed.clear()
      messages.dispose()
    },
  }
}

/** The first message tag of shape announcements. Messages with activations use smaller tags. */
const SHAPE_TAG = 2 ** 30
/** The largest number of dimensions that fits into an announcement. Tensors have fewer. */
const DIMENSIONS = 8

interface Announcement {
  /** The shape of one example's activation. */
  readonly shape: readonly number[]
  /** Whether the sender wants the gradient: false if all stages up to the sender lack parameters. */
  readonly needsGradient: boolean
}

/**
 * The shapes of activations between neighbouring stages, and of their gradients, without the batch axis.
 *
 * They depend on the shape of the inputs, which the first rank broadcasts while it computes. If the inputs have
 * the same shape as in the previous pass, all receives are posted at once.
 */
function createShapes(group: ProcessGroup, placement: readonly number[]) {
  const known = new Map<number, Announcement>()
  let announced: Work[] = []
  let last = ''

  return {
    /** Starts a pass. If the shape of the inputs has changed, forgets all shapes. All ranks call it. */
    async begin(batch: Microbatches) {
      const root = placement[0]!
      /** The number of dimensions of one example, then the dimensions. */
      const inputs = new Int32Array(1 + DIMENSIONS)
      if (group.rank === root) {
        const shape = batch.inputShape()
        inputs.set([shape.length, ...shape])
      }
      if (group.size > 1) {
        const told = group.broadcast(inputs, root, { label: 'shape of the inputs' })
        if (group.rank === root) announced.push(told)
        else await told
      }
      const now = inputs.join()
      if (now !== last) known.clear()
      last = now
    },

    of: ({ direction, stage }: Message) =>
      known.get(direction === 'forward' ? stage : stage + 1)?.shape,

    /** Whether the gradients of activations for `stage` are wanted. */
    needsGradient: (stage: number) => known.get(stage)?.needsGradient ?? false,

    /**
     * Waits for another rank's announcement of an activation's shape.
     * @throws ERR_TSR_ARGUMENT in a world with the transport `fake`
     */
    async learn({ stage }: Message) {
      const from = placement[stage - 1]!
      const announcement = await group.recvObject(from, { tag: SHAPE_TAG + stage })
      if (announcement === undefined) {
        throw argumentError(
          'group',
          'of a fake world',
          'one with other ranks, from which a later stage of a pipeline learns shapes',
        )
      }
      known.set(stage, announcement as Announcement)
    },

    /** Announces a shape to the next stage, unless that stage knows it. @returns whether it was announced */
    announce({ stage }: Message, tensor: Tensor, needsGradient: boolean) {
      if (known.has(stage)) return false
      const announcement = { shape: tensor.shape.slice(1), needsGradient }
      known.set(stage, announcement)
      const to = placement[stage]!
      if (to !== group.rank) {
        announced.push(group.sendObject(announcement, to, { tag: SHAPE_TAG + stage }))
      }
      return true
    },

    async announced() {
      const works = announced
      announced = []
      for (const work of works) await work
    },
  }
}

/** Returns the tag of a message, which identifies it in a pass. */
function tagOf({ direction, stage, microbatch }: Message) {
  return 2 * (stage * MICROBATCHES + microbatch) + (direction === 'forward' ? 0 : 1)
}

function factsOf({ stage, microbatch }: Message, { byteLength }: Float32Array): SpanFacts {
  return { stage, microbatch, bytes: byteLength }
}

/** A buffer of the pool with its prepared operations. Only one operation uses the buffer at a time. */
interface PooledBuffer {
  readonly buffer: Float32Array
  readonly operations: Map<number, PersistentOperation>
  /** The operation of the last message; undefined before the first. */
  current: PersistentOperation | undefined
  /** Whether the last message has not been sent or read yet. */
  isHeld: boolean
}

/**
 * The messages of a pipeline, in the arena of its group. All passes exchange messages with the same keys and
 * lengths, so buffers and prepared operations are reused.
 */
export function preparedMessages(group: ProcessGroup) {
  const pool = new Map<number, PooledBuffer[]>()
  return {
    /**
     * Returns a message with a free buffer of undefined contents. Call `send`, or start its operation to
     * receive and `release` it after reading.
     *
     * @param key - identifies the message; the same in every pass
     * @param prepare - prepares the message's operation for a buffer; called once per buffer and key
     */
    take(
      key: number,
      length: number,
      prepare: (buffer: Float32Array) => PersistentOperation,
    ): PreparedMessage {
      const buffers = pool.get(length) ?? []
      pool.set(length, buffers)
      let pooled = buffers.find(
        ({ current, isHeld }) => !isHeld && current?.isCompleted() !== false,
      )
      if (pooled === undefined) {
        const buffer = group.allocUnsafe('float32', length)
        pooled = { buffer, operations: new Map(), current: undefined, isHeld: false }
        buffers.push(pooled)
      }
      const { buffer, operations } = pooled
      const operation = operations.get(key) ?? prepare(buffer)
      operations.set(key, operation)
      pooled.current = operation
      pooled.isHeld = true
      return { buffer, operation, pooled }
    },

    /** Sends a message. Its buffer stays in use until the send completes. */
    send({ operation, pooled }: PreparedMessage) {
      operation.start()
      pooled.isHeld = false
    },

    /** Returns the buffer of a received message to the pool. */
    release({ pooled }: PreparedMessage) {
      pooled.isHeld = false
    },

    /** Frees each buffer as soon as no message is using it. */
    dispose() {
      for (const { buffer, operations, current } of [...pool.values()].flat()) {
        const free = () => {
          group.free(buffer)
        }
        for (const operation of operations.values()) {
          freeAfterRun(operation, operation === current ? free : undefined)
        }
        if (current === undefined) free()
      }
      pool.clear()
    },
  }
}
