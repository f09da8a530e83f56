import { argumentError } from '@tsrun/core'
import type { CallOptions, ProcessGroup, ReduceOptions, Work } from '@tsrun/distributed'
import { timeSpan, timeWait } from '@tsrun/distributed/record'
import { scopedTensorFrom, tensorFrom, writeTo } from '../../backend/host-memory.ts'
import {
  dtypeRule,
  newArray,
  sizeOf,
  type HostArray,
  type HostDType,
} from '../../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { freeAfter } from '../group-buffers.ts'
import { checkBackendBlocks } from '../requirements.ts'

/*
 * Operations of a group on tensors. Values are sent from and received into buffers in the group's arena. An
 * operation can run inside a pass, where it blocks, or outside, where it is awaited.
 */

export interface TensorFacts {
  readonly shape: readonly number[]
  readonly dtype: string
}

export interface PreparedOperation extends TensorFacts {
  /** The buffer for the values of this rank's tensor, if any. The caller fills it before `start`. */
  readonly input: HostArray
  readonly start: () => Work<unknown>
  /** Returns the values of the result. Call it before freeing the buffer. Undefined if this rank gets none. */
  readonly output: (() => HostArray) | undefined
  /** The buffer of all values, to free after use. */
  readonly buffer: HostArray
}

/**
 * Prepares a collective on a tensor.
 *
 * @param x - the tensor of this rank; shape and dtype are the same on all ranks
 * @throws ERR_TSR_ARGUMENT for a dtype other than float32, int32 and bool, and for an axis
 *   that cannot be divided evenly among the ranks
 */
export type TensorCollective = (
  x: TensorFacts,
  group: ProcessGroup,
  options: CallOptions,
) => PreparedOperation

/** Prepares an operation whose result replaces the values in the buffer. */
export function inPlace(
  { shape, dtype }: TensorFacts,
  group: ProcessGroup,
  start: (buffer: HostArray) => Work<unknown>,
  hasResult = true,
): PreparedOperation {
  const buffer = allocate(group, dtype, sizeOf(shape))
  const output = hasResult ? () => buffer : undefined
  return { shape, dtype, buffer, input: buffer, output, start: () => start(buffer) }
}

/** @throws ERR_TSR_ARGUMENT for a dtype other than float32, int32 and bool; ERR_TSR_ARENA_EXHAUSTED */
function allocate(group: ProcessGroup, dtype: string, length: number): HostArray {
  return group.allocUnsafe(dtypeRule.check('the dtype of a tensor', dtype), length)
}

/** A tensor cut along an axis into parts of equal shape, one for each rank. */
export type Cut = ReturnType<typeof cutOfPart>

/** Describes a cut by the shape of one part. @param axis - may be negative */
export function cutOfPart(part: readonly number[], axis: number, size: number) {
  const at = axisOf(part, axis)
  const whole = part.map((length, i) => (i === at ? length * size : length))
  /** The number of blocks of consecutive values in a part. */
  const rows = sizeOf(part.slice(0, at))
  return { part, whole, rows, size }
}

/** @throws ERR_TSR_ARGUMENT when the length of the axis is not a multiple of `size` */
export function cutOfWhole(whole: readonly number[], axis: number, size: number) {
  const at = axisOf(whole, axis)
  const value = whole[at]!
  if (value % size !== 0) {
    throw argumentError(
      `axis ${axis} of a tensor of shape [${whole.join(', ')}]`,
      value,
      `a multiple of the ${size} ranks that share it`,
    )
  }
  return cutOfPart(whole.with(at, value / size), at, size)
}

function axisOf({ length }: readonly number[], axis: number) {
  const at = axis < 0 ? axis + length : axis
  if (Number.isInteger(at) && at >= 0 && at < length) return at
  throw argumentError('axis', axis, `an axis of a tensor with ${length}`)
}

type Content = 'part' | 'whole'

/**
 * Prepares an operation on parts. A `whole` input is cut before the start; a `whole` output is
 * joined after the end.
 *
 * @param contents - whether this rank's input and output are a part or a whole; undefined if absent
 * @param start - called with the output buffer and the input buffer; an absent buffer is empty
 */
export function onParts(
  cut: Cut,
  contents: {
    readonly dtype: string
    readonly input?: Content | undefined
    readonly output?: Content | undefined
  },
  group: ProcessGroup,
  start: (output: HostArray, input: HostArray) => Work,
): PreparedOperation {
  const { dtype, input: from, output: to } = contents
  const [inputs, outputs] = [from, to].map((each) => (each === undefined ? 0 : sizeOf(cut[each])))
  const buffer = allocate(group, dtype, inputs! + outputs!)
  const [sent, received] = [buffer.subarray(0, inputs), buffer.subarray(inputs)]
  const newWhole = () => newArray(cut.whole, dtype as HostDType)
  const uncut = from === 'whole' && cut.rows > 1 ? newWhole() : undefined
  return {
    dtype,
    shape: [...cut[to ?? 'part']],
    buffer,
    input: uncut ?? sent,
    start: () => {
      if (uncut !== undefined) rearrange(uncut, sent, cut, 'parts')
      return start(received, sent)
    },
    output:
      to &&
      (() => {
        if (to === 'part' || cut.rows === 1) return received
        const whole = newWhole()
        rearrange(whole, received, cut, 'whole')
        return whole
      }),
  }
}

/** Sums a tensor over the ranks. */
export const sum: TensorCollective = (x, group, options) =>
  inPlace(x, group, (buffer) => group.allReduce(buffer, options))

/**
 * Concatenates the tensors of all ranks along an axis, in rank order: [..., n, ...] becomes
 * [..., size * n, ...].
 */
export const gatherAlong =
  (axis: number): TensorCollective =>
  ({ shape, dtype }, group, options) => {
    const cut = cutOfPart(shape, axis, group.size)
    return onParts(cut, { dtype, input: 'part', output: 'whole' }, group, (all, own) =>
      group.allGather(all, own, options),
    )
  }

/**
 * Reduces a tensor over the ranks. Each rank gets its part along an axis: [..., n, ...] becomes
 * [..., n / size, ...].
 */
export const reduceScatterAlong =
  (axis: number): TensorCollective =>
  ({ shape, dtype }, group, options: ReduceOptions) => {
    const cut = cutOfWhole(shape, axis, group.size)
    return onParts(cut, { dtype, input: 'whole', output: 'part' }, group, (own, all) =>
      group.reduceScatter(own, all, options),
    )
  }

/**
 * Runs a collective inside a pass, and calls `compute` while it is in progress. The call blocks, because a
 * pass cannot await. The current pass owns the result.
 *
 * @throws ERR_TSR_BACKEND when the backend can only read values asynchronously
 */
export function runWhile<T>(
  collective: TensorCollective,
  x: Tensor,
  group: ProcessGroup,
  label: string,
  compute: () => T,
) {
  checkBackendBlocks()
  const { input, start, output, shape, dtype, buffer } = collective(x, group, { label })
  let work: Work<unknown> | undefined
  try {
    timeSpan(group.spans, 'pack', { name: label, bytes: input.byteLength }, () => {
      void writeTo(x, input)
    })
    work = timeSpan(group.spans, 'call', { name: label }, start)
    const result = compute()
    work.wait()
    const bytes = sizeOf(shape) * buffer.BYTES_PER_ELEMENT
    const value = timeSpan(group.spans, 'unpack', { name: label, bytes }, () =>
      scopedTensorFrom(output!(), shape, dtype as HostDType),
    )
    return { value, result }
  } finally {
    freeAfter(work, group, buffer)
  }
}

/**
 * Runs an operation outside of passes, on every backend. It starts before the call returns, unless
 * the values must be fetched from a device first.
 *
 * @param x - the tensor of this rank, if it passes one; may be disposed as soon as this returns
 * @param label - for the recorded spans
 * @returns a tensor that outlives any tf.tidy and that the caller disposes; undefined if this rank
 *   gets no result
 */
export async function complete(
  { input, start, output, shape, dtype, buffer }: PreparedOperation,
  x: Tensor | undefined,
  group: ProcessGroup,
  label?: string,
): Promise<Tensor | undefined> {
  const { spans } = group
  const facts = { name: label }
  let work: Work<unknown> | undefined
  try {
    if (x !== undefined) {
      const { byteLength: bytes } = input
      const written = timeSpan(spans, 'pack', { ...facts, bytes }, () => writeTo(x, input))
      if (written !== undefined) {
        // Keep a clone until the values have been fetched, so that the caller may dispose the tensor.
        const held = tf.keep(tf.clone(x))
        await written.finally(() => {
          held.dispose()
        })
      }
    }
    const started = timeSpan(spans, 'call', facts, start)
    work = started
    await timeWait(spans, facts, () => started)
    if (output === undefined) return undefined
    const bytes = sizeOf(shape) * buffer.BYTES_PER_ELEMENT
    return timeSpan(spans, 'unpack', { ...facts, bytes }, () =>
      tensorFrom(output(), shape, dtype as HostDType),
    )
  } finally {
    freeAfter(work, group, buffer)
  }
}

/** Moves values between a whole tensor and its parts, which are in rank order. */
function rearrange(
  whole: HostArray,
  parts: HostArray,
  { rows, size, part }: Cut,
  to: 'whole' | 'parts',
) {
  const length = sizeOf(part) / rows
  for (let rank = 0; rank < size; rank++) {
    for (let row = 0; row < rows; row++) {
      const inWhole = (row * size + rank) * length
      const inParts = (rank * rows + row) * length
      for (let i = 0; i < length; i++) {
        if (to === 'whole') whole[inWhole + i] = parts[inParts + i]!
        else parts[inParts + i] = whole[inWhole + i]!
      }
    }
  }
}
