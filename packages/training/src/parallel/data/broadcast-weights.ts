import type { ProcessGroup } from '@tsrun/distributed'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import type { LayersModelLike } from '../../checkpoint/layers.ts'
import { flatten, partsOf } from '../../optim/flat-gradients.ts'
import { checkGroup } from '../check-group.ts'
import { checkReplicas } from './replicas.ts'

/**
 * Gives all weights of a tf.layers model the values of `root`: those that are not trained, too, which
 * a `DistributedOptimizer` does not see. Call it where frozen layers begin with random values, or after
 * `fit` where the model has moving averages (batch normalisation): each rank has its own.
 *
 * @throws ERR_TSR_REPLICA when the ranks have other weights, ERR_TSR_ARGUMENT
 *
 * @example
 * await broadcastWeights(model, group)
 */
export async function broadcastWeights(
  { layers }: LayersModelLike,
  group: ProcessGroup,
  root = 0,
): Promise<void> {
  checkGroup(group)
  const weights = layers.flatMap((layer, index) =>
    layer.weights.map((variable, i) => {
      const { originalName, shape, shard } = variable
      const name = `${String(index)}.${String(i)} ${originalName}`
      return { variable, name, shape: shape as readonly number[], shard }
    }),
  )
  await checkReplicas(weights, group)
  const layout = flatten(weights)
  const buffer = group.alloc('float32', layout.length)
  try {
    const parts = partsOf(layout, buffer)
    if (group.rank === root) {
      for (const { name, variable } of weights) await writeTo(variable.read(), parts.get(name)!)
    }
    await group.broadcast(buffer, root, { label: 'weights of the model' })
    for (const { name, shape, variable } of group.rank === root ? [] : weights) {
      const value = tensorFrom(parts.get(name)!, shape)
      variable.write(value)
      value.dispose()
    }
  } finally {
    group.free(buffer)
  }
}
