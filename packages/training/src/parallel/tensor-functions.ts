import { argumentError, count, list, where } from '@tsrun/core'
import type {
  CollectiveOptions,
  MessageOptions,
  ProcessGroup,
  ReduceOptions,
  Source,
} from '@tsrun/distributed'
import { describe } from '../model/describe.ts'
import type { HostDType } from '../tfjs/host-arrays.ts'
import type { Tensor } from '../tfjs/tfjs.ts'
import { checkGroup } from './requirements.ts'
import {
  complete,
  cutOfPart,
  cutOfWhole,
  gatherAlong,
  inPlace,
  onParts,
  reduceScatterAlong,
  sum,
  type TensorCollective,
} from './tensor/collectives.ts'

/*
 * Collectives and messages of tensors, for every backend. All ranks of the group call the collectives in the
 * same order, with the same root, axis and options, and with tensors of the same shape and dtype.
 *
 * A tensor that is passed is not changed, and may be disposed as soon as the call returns. A result
 * outlives any tf.tidy.
 *
 * Await the result of a collective before the next one of the group: with a GPU, it starts only after the
 * values have been fetched. Inside a forward or backward pass, use the operations of tensor parallelism
 * instead, which have gradients.
 */

/** Options of a collective whose tensors are parts of a whole, one for each rank in rank order. */
export interface PartOptions extends CollectiveOptions {
  /** The axis along which the parts lie; negative: counted from the last. Default 0. */
  readonly axis?: number
}

/**
 * Reduces a tensor over the ranks: computes the sum, or with `{ op: 'avg' }` the mean. All ranks get
 * bitwise equal results.
 *
 * @param tensor - any shape; float32, int32 or bool
 * @returns a new tensor of the same shape, which the caller disposes
 * @throws ERR_TSR_ARGUMENT; the errors of `group.allReduce`
 *
 * @example
 * const mean = await allReduceTensor(group, gradient, { op: 'avg' })
 */
export async function allReduceTensor(
  group: ProcessGroup,
  tensor: Tensor,
  options?: ReduceOptions,
): Promise<Tensor> {
  return (await run(group, tensor, sum, options))!
}

/**
 * Reduces a tensor over the ranks. Only `root` gets the result.
 *
 * @param tensor - any shape; float32, int32 or bool
 * @returns on `root` a new tensor of the same shape, which the caller disposes; on other ranks
 *   undefined
 * @throws ERR_TSR_ARGUMENT; the errors of `group.reduce`
 */
export async function reduceTensor(
  group: ProcessGroup,
  tensor: Tensor,
  root: number,
  options?: ReduceOptions,
): Promise<Tensor | undefined> {
  return await run(group, tensor, (facts) =>
    inPlace(facts, group, (buffer) => group.reduce(buffer, root, options), group.rank === root),
  )
}

/**
 * Copies the tensor of `root` to all ranks.
 *
 * @param tensor - any shape; float32, int32 or bool; on ranks other than `root`, only its shape and
 *   dtype are used
 * @returns a new tensor of the same shape, which the caller disposes
 * @throws ERR_TSR_ARGUMENT; the errors of `group.broadcast`
 */
export async function broadcastTensor(
  group: ProcessGroup,
  tensor: Tensor,
  root: number,
  options?: CollectiveOptions,
): Promise<Tensor> {
  const copied = await run(group, tensor, (facts) =>
    inPlace(facts, group, (buffer) => group.broadcast(buffer, root, options)),
  )
  return copied!
}

/**
 * Concatenates the tensors of all ranks along an axis, in rank order, like `tf.concat` of a list of
 * these tensors.
 *
 * @param tensor - [..., n, ...]; float32, int32 or bool
 * @returns a new tensor [..., size * n, ...], the same on all ranks; the caller disposes it
 * @throws ERR_TSR_ARGUMENT for an axis that the tensor lacks; the errors of `group.allGather`
 *
 * @example
 * const x = await allGatherTensor(group, columns, { axis: 1 }) // [rows, size * columns]
 */
export async function allGatherTensor(
  group: ProcessGroup,
  tensor: Tensor,
  { axis = 0, ...options }: PartOptions = {},
): Promise<Tensor> {
  return (await run(group, tensor, gatherAlong(axis), options))!
}

/**
 * Reduces a tensor over the ranks, and cuts the result along an axis: rank r gets part r.
 *
 * @param tensor - [..., size * n, ...]; float32, int32 or bool
 * @returns a new tensor [..., n, ...], which the caller disposes
 * @throws ERR_TSR_ARGUMENT when `group.size` does not divide the length of the axis; the errors
 *   of `group.reduceScatter`
 *
 * @example
 * const own = await reduceScatterTensor(group, gradient, { axis: 1 }) // [rows, width / size]
 */
export async function reduceScatterTensor(
  group: ProcessGroup,
  tensor: Tensor,
  { axis = 0, ...options }: PartOptions & ReduceOptions = {},
): Promise<Tensor> {
  return (await run(group, tensor, reduceScatterAlong(axis), options))!
}

/**
 * Concatenates the tensors of all ranks along an axis, in rank order, on one rank.
 *
 * @param tensor - [..., n, ...]; float32, int32 or bool
 * @returns on `root` a new tensor [..., size * n, ...], which the caller disposes; on other ranks
 *   undefined
 * @throws ERR_TSR_ARGUMENT for an axis that the tensor lacks; the errors of `group.gather`
 */
export async function gatherTensor(
  group: ProcessGroup,
  tensor: Tensor,
  root: number,
  { axis = 0, ...options }: PartOptions = {},
): Promise<Tensor | undefined> {
  return await run(group, tensor, ({ shape, dtype }) => {
    const cut = cutOfPart(shape, axis, group.size)
    const isRoot = group.rank === root
    const output = isRoot ? 'whole' : undefined
    return onParts(cut, { dtype, input: 'part', output }, group, (all, own) =>
      group.gather(isRoot ? all : null, own, root, options),
    )
  })
}

/** Options of `scatterTensor`. */
export interface ScatterOptions extends PartOptions {
  /** The dtype of the tensor of `root`: `float32` (default), `int32` or `bool`. */
  readonly dtype?: HostDType
}

/**
 * Cuts the tensor of `root` along an axis: rank r gets part r.
 *
 * @param shape - the shape of one rank's part: [..., n, ...]
 * @param tensor - on `root` [..., size * n, ...]; on other ranks null
 * @returns a new tensor [..., n, ...], which the caller disposes
 * @throws ERR_TSR_ARGUMENT when the tensor of `root` is not as long as all parts; the errors
 *   of `group.scatter`
 *
 * @example
 * const rows = await scatterTensor(group, [32, 1024], group.rank === 0 ? batch : null, 0)
 */
export async function scatterTensor(
  group: ProcessGroup,
  shape: readonly number[],
  tensor: Tensor | null,
  root: number,
  { axis = 0, dtype = 'float32', ...options }: ScatterOptions = {},
): Promise<Tensor> {
  checkGroup(group)
  const cut = cutOfPart(aShape.check('shape', shape), axis, group.size)
  const whole = group.rank === root ? aTensor.check('tensor', tensor) : undefined
  if (whole && (whole.dtype !== dtype || whole.shape.join() !== cut.whole.join())) {
    throw argumentError(
      'tensor',
      `${whole.dtype} [${whole.shape.join(', ')}]`,
      `${dtype} [${cut.whole.join(', ')}], a part of [${shape.join(', ')}] for each rank`,
    )
  }
  const contents = { dtype, input: whole && ('whole' as const), output: 'part' as const }
  const scattering = onParts(cut, contents, group, (own, all) =>
    group.scatter(own, whole ? all : null, root, options),
  )
  return (await complete(scattering, whole, group))!
}

/**
 * Cuts the tensor of each rank along an axis, sends part r to rank r, and concatenates the parts
 * received along the same axis, in rank order.
 *
 * @param tensor - [..., size * n, ...]; float32, int32 or bool
 * @returns a new tensor of the same shape, which the caller disposes
 * @throws ERR_TSR_ARGUMENT when `group.size` does not divide the length of the axis; the errors
 *   of `group.allToAll`
 */
export async function allToAllTensor(
  group: ProcessGroup,
  tensor: Tensor,
  { axis = 0, ...options }: PartOptions = {},
): Promise<Tensor> {
  return (await run(group, tensor, ({ shape, dtype }) =>
    onParts(
      cutOfWhole(shape, axis, group.size),
      { dtype, input: 'whole', output: 'whole' },
      group,
      (received, sent) => group.allToAll(received, sent, options),
    ),
  ))!
}

/** Options of `recvTensor`. */
export interface ReceiveOptions extends MessageOptions {
  /** The dtype of the sent tensor: `float32` (default), `int32` or `bool`. */
  readonly dtype?: HostDType
}

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
  await run(group, tensor, (facts) =>
    inPlace(facts, group, (buffer) => group.send(buffer, to, options), false),
  )
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
export async function recvTensor(
  group: ProcessGroup,
  shape: readonly number[],
  from: Source,
  { dtype = 'float32', ...options }: ReceiveOptions = {},
): Promise<Tensor> {
  checkGroup(group)
  const message = { shape: aShape.check('shape', shape), dtype }
  const receiving = inPlace(message, group, (buffer) => group.recv(buffer, from, options))
  return (await complete(receiving, undefined, group))!
}

const aTensor = where<Tensor>(
  (value) => typeof (value as Partial<Tensor> | null | undefined)?.dataSync === 'function',
  'a tensor',
  describe,
)

const aShape = where<readonly number[]>(list(count()).is, 'a shape, as in [128, 1024]', describe)

async function run(
  group: ProcessGroup,
  tensor: Tensor,
  collective: TensorCollective,
  options: CollectiveOptions = {},
) {
  checkGroup(group)
  return await complete(collective(aTensor.check('tensor', tensor), group, options), tensor, group)
}
