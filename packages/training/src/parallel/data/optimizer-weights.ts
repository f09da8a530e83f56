import type { ProcessGroup } from '@tsrun/distributed'
import type * as tfc from '@tensorflow/tfjs-core'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import { tf } from '../../tfjs/tfjs.ts'
import { flatten, partsOf } from '../../optim/flat-gradients.ts'

/** What `getWeights` of an optimizer of tf.train gives: first its steps, an integer. */
export type OptimizerWeight = Awaited<ReturnType<tfc.Optimizer['saveIterations']>>

interface Described {
  readonly name: string
  readonly shape: readonly number[]
  /** Of what is no float32. */
  readonly integers?: readonly number[]
}

/**
 * The weights of rank 0's optimizer, on all ranks of the group.
 *
 * @param weights - those of other ranks are not looked at
 * @returns new tensors
 */
export async function weightsOfRoot(
  weights: readonly OptimizerWeight[],
  group: ProcessGroup,
): Promise<OptimizerWeight[]> {
  const own = group.rank === 0 ? await Promise.all(weights.map(describe)) : []
  const described = await group.broadcastObject(own, 0, { label: 'weights of the optimizer' })
  const layout = flatten(
    described.flatMap(({ shape, integers }, i) =>
      integers === undefined ? [{ name: String(i), shape }] : [],
    ),
  )
  const buffer = group.alloc('float32', layout.length)
  try {
    const parts = partsOf(layout, buffer)
    if (group.rank === 0) {
      for (const [i, part] of parts) await writeTo(weights[Number(i)]!.tensor, part)
    }
    await group.broadcast(buffer, 0, { label: 'weights of the optimizer' })
    return described.map(({ name, shape, integers }, i) => {
      const part = parts.get(String(i))
      const tensor =
        part === undefined
          ? tf.tensor([...integers!], [...shape], 'int32')
          : tensorFrom(part, shape)
      return { name, tensor }
    })
  } finally {
    group.free(buffer)
  }
}

async function describe({ name, tensor }: OptimizerWeight): Promise<Described> {
  const { shape } = tensor
  if (tensor.dtype === 'float32') return { name, shape }
  return { name, shape, integers: [...(await tensor.data<'int32'>())] }
}
