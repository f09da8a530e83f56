import { count, list, where } from '@tsrun/core'
import type { MessageOptions, ProcessGroup, Source } from '@tsrun/distributed'
import { describe } from '../model/describe.ts'
import type { HostDType } from '../tfjs/host-arrays.ts'
import type { Tensor } from '../tfjs/tfjs.ts'
import { checkGroup } from './requirements.ts'
import { complete, inPlace } from './tensor/collectives.ts'

/*
 * Messages of tensors, for every backend. All calls are asynchronous, because the values of a GPU
 * tensor can only be read asynchronously. If the values are in host memory, the operation starts
 * before the call returns.
 */

/** Options of `recvTensor`. */
export interface ReceiveOptions<D extends HostDType = HostDType> extends MessageOptions {
  /** The dtype of the sent tensor: `float32` (default), `int32` or `bool`. */
  readonly dtype?: D
}

export const aTensor = where<Tensor>(
  (value) => typeof (value as Partial<Tensor> | null | undefined)?.dataSync === 'function',
  'a tensor',
  describe,
)

export const aShape = where<readonly number[]>(
  list(count()).is,
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
  const message = aTensor.check('tensor', tensor)
  const sending = inPlace(message, group, (buffer) => group.send(buffer, to, options), false)
  await complete(sending, tensor, group)
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
  const message = { shape: aShape.check('shape', shape), dtype }
  const receiving = inPlace(message, group, (buffer) => group.recv(buffer, from, options))
  return (await complete(receiving, undefined, group))!
}
