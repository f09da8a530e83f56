import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { scopedTensorFrom, tensorFrom, writeTo } from '../../backend/host-memory.ts'
import { blockingBackend } from '../blocking.ts'
import { freeAfter } from '../lent-buffers.ts'
import type { Collective } from './collectives.ts'

/**
 * A collective inside a forward or a backward pass, where nothing can be awaited: it blocks. The
 * result belongs to the pass that is under way, as those of other operations do.
 *
 * @throws ERR_TSR_BACKEND where values can be read asynchronously only
 */
export function transfer(
  collective: Collective,
  x: Tensor,
  group: ProcessGroup,
  label: string,
): Tensor {
  return transferWhile(collective, x, group, label, () => undefined).value
}

/** The same, with what `compute` makes while the numbers travel. */
export function transferWhile<T>(
  collective: Collective,
  x: Tensor,
  group: ProcessGroup,
  label: string,
  compute: () => T,
): { readonly value: Tensor; readonly result: T } {
  blockingBackend()
  const { input, start, output, shape, buffers } = collective(x.shape, group)
  let work: Work | undefined
  try {
    void writeTo(x, input)
    work = start(label)
    const result = compute()
    work.wait()
    return { value: scopedTensorFrom(output(), shape), result }
  } finally {
    for (const buffer of buffers) freeAfter(work, group, buffer)
  }
}

/**
 * A collective between passes, on every backend. It starts before this returns, unless the values
 * have to be fetched first.
 *
 * @param x - to be kept until the promise is settled
 * @returns a tensor of the caller's
 */
export async function awaitTransfer(
  collective: Collective,
  x: Tensor,
  group: ProcessGroup,
  label: string,
): Promise<Tensor> {
  const { input, start, output, shape, buffers } = collective(x.shape, group)
  let work: Work | undefined
  try {
    const written = writeTo(x, input)
    if (written !== undefined) await written
    work = start(label)
    await work
    return tensorFrom(output(), shape)
  } finally {
    for (const buffer of buffers) freeAfter(work, group, buffer)
  }
}
