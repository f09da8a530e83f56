import { tsrError, where } from '@tsrun/core'
import type { MessageOptions, ProcessGroup, ReduceOptions, Source, Work } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/distributed/record'
import { tensorFrom, writeTo } from '../backend/host-memory.ts'
import { describe } from '../model/describe.ts'
import { sizeOf, type HostArrays, type HostDType } from '../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { freeAfter } from './group-buffers.ts'
import { checkGroup } from './requirements.ts'

/*
 * Messages and sums of tensors, for every backend. Values are sent from and received into buffers in the
 * group's arena, which this module allocates and frees. All calls are asynchronous, because the values of
 * a GPU tensor can only be read asynchronously. If the values are in host memory, the operation starts
 * before the call returns.
 */

export interface ReceiveOptions<D extends HostDType = HostDType> extends MessageOptions {
  /** The dtype of the sent tensor: `float32` (default), `int32` or `bool`. */
  readonly dtype?: D
}

const aTensor = where<Tensor>(
  (value) => typeof (value as Partial<Tensor> | null | undefined)?.dataSync === 'function',
  'a tensor',
  describe,
)

const aShape = where<readonly number[]>(
  (value) => Array.isArray(value) && value.every((each) => Number.isSafeInteger(each) && each >= 0),
  'a shape, as in [128, 1024]',
  describe,
)

/**
 * Sends the values of a tensor to another rank, which receives them with `recvTensor`. The receiver
 * must know the shape and the dtype, because they are not sent.
 *
 * @param tensor - float32, int32 or bool; it may be disposed as soon as this returns
 * @param to - a rank of the group, for example `group.next`
 * @returns a promise that resolves when the send completes and rejects with the errors of
 *   `group.send`. To compute during the send, await it later.
 * @throws ERR_TSR_ARGUMENT
 *
 * @example await sendTensor(group, activations, group.next, { tag: microbatch })
 */
export async function sendTensor(
  group: ProcessGroup,
  tensor: Tensor,
  to: number,
  options?: MessageOptions,
): Promise<void> {
  checkGroup(group)
  const buffer = allocate(group, aTensor.check('tensor', tensor))
  await run(group, tensor, buffer, () => group.send(buffer, to, options))
}

/**
 * Receives the values that another rank sends with `sendTensor`.
 *
 * @param shape - the shape of the sent tensor
 * @param from - a rank of the group, for example `group.previous`, or `'any'`
 * @returns a tensor that outlives any tf.tidy; the caller disposes it. The promise rejects with the
 *   errors of `group.recv`.
 * @throws ERR_TSR_ARGUMENT
 *
 * @example
 * const activations = await recvTensor(group, [32, 1024], group.previous, { tag: microbatch })
 */
export async function recvTensor<D extends HostDType = 'float32'>(
  group: ProcessGroup,
  shape: readonly number[],
  from: Source,
  { dtype = 'float32' as D, ...options }: ReceiveOptions<D> = {},
): Promise<Tensor> {
  checkGroup(group)
  const buffer = allocate(group, { shape: aShape.check('shape', shape), dtype })
  let work: Work<number> | undefined
  try {
    work = group.recv(buffer, from, options)
    await work
    return timeSpan(group.spans, 'unpack', { bytes: buffer.byteLength }, () =>
      tensorFrom(buffer as HostArrays[D], shape, dtype),
    )
  } finally {
    freeAfter(work, group, buffer)
  }
}

/**
 * Reduces a tensor over the ranks: computes the sum, or with `{ op: 'avg' }` the mean. All ranks
 * call it with tensors of the same shape and dtype, and get bitwise equal results.
 *
 * Await the result before the next collective of the group: with a GPU, the collective starts only
 * after the values have been fetched.
 *
 * @param tensor - float32, int32 or bool; it is not changed, and may be disposed as soon as this returns
 * @returns a tensor that outlives any tf.tidy; the caller disposes it. The promise rejects with the errors
 *   of `group.allReduce`.
 * @throws ERR_TSR_ARGUMENT
 *
 * @example
 * const mean = await allReduceTensor(group, gradient, { op: 'avg' })
 */
export async function allReduceTensor(
  group: ProcessGroup,
  tensor: Tensor,
  options?: ReduceOptions,
): Promise<Tensor> {
  checkGroup(group)
  const { shape, dtype } = aTensor.check('tensor', tensor)
  const buffer = allocate(group, tensor)
  return await run(
    group,
    tensor,
    buffer,
    () => group.allReduce(buffer, options),
    () => tensorFrom(buffer, shape, dtype as HostDType),
  )
}

type Buffer = HostArrays[HostDType]

/** @throws ERR_TSR_ARGUMENT for a dtype other than float32, int32 and bool */
function allocate(
  group: ProcessGroup,
  { shape, dtype }: { readonly shape: readonly number[]; readonly dtype: string },
): Buffer {
  const dtypes = ['float32', 'int32', 'bool'] as const
  const known = dtypes.find((name) => name === dtype)
  if (known !== undefined) return group.allocUnsafe(known, sizeOf(shape))
  const expected = `one of ${dtypes.join(', ')}`
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'the dtype of a tensor', value: dtype, expected })
}

/** Copies the tensor's values to `buffer`, runs the operation on the buffer, and frees the buffer. */
async function run<T = void>(
  group: ProcessGroup,
  tensor: Tensor,
  buffer: Buffer,
  start: () => Work,
  take?: () => T,
): Promise<T> {
  let work: Work | undefined
  try {
    const facts = { bytes: buffer.byteLength }
    const written = timeSpan(group.spans, 'pack', facts, () => writeTo(tensor, buffer))
    if (written !== undefined) await holding(tensor, written)
    work = start()
    await work
    if (take === undefined) return undefined as T
    return timeSpan(group.spans, 'unpack', facts, take)
  } finally {
    freeAfter(work, group, buffer)
  }
}

/** Keeps a clone of the tensor until its values have been fetched, so that the caller may dispose it. */
async function holding(tensor: Tensor, written: Promise<void>): Promise<void> {
  const held = tf.keep(tf.clone(tensor))
  try {
    await written
  } finally {
    held.dispose()
  }
}
