import type { ProcessGroup } from '@tsrun/distributed'
import { broadcastTensor } from '@tsrun/training'
import { checkGroup, compareParameters } from '@tsrun/training/parts'
import { weightsOf, type LayersModel } from './model.ts'

/** The argument of the constructor `CustomCallback` of tf.layers. */
export interface MetricsCallback {
  onEpochEnd(epoch: number, logs?: Record<string, unknown>): Promise<void>
}

/**
 * Returns a callback that makes the loss and metrics of `fit` the same on all ranks, like Horovod's
 * MetricAverageCallback. It replaces each value with the mean over the ranks, before later
 * callbacks and the history see it. Early stopping thus happens at the same epoch on all ranks. All
 * ranks must fit the same number of epochs with the same metrics.
 *
 * @example
 * const average = new tfl.CustomCallback(averageMetrics(group))
 * const patient = tfl.callbacks.earlyStopping({ monitor: 'val_loss', patience: 2 })
 * await model.fit(x, y, { validationSplit: 0.1, callbacks: [average, patient] })
 */
export function averageMetrics(group: ProcessGroup): MetricsCallback {
  return {
    async onEpochEnd(_epoch, logs = {}) {
      const names = Object.keys(logs)
        .filter((name) => typeof logs[name] === 'number')
        .sort()
      const values = Float64Array.from(names, (name) => logs[name] as number)
      await group.allReduce(values, { op: 'avg', label: `metrics: ${names.join(', ')}` })
      for (const [i, name] of names.entries()) logs[name] = values[i]!
    },
  }
}

/**
 * Sets all weights of a tf.layers model to the values of rank `root`, including untrained weights, which
 * a `DistributedOptimizer` does not see. Call it before `fit` if frozen layers start with random values.
 * Call it after `fit` if the model has moving averages (batch normalization), which differ between ranks.
 *
 * @throws ERR_TSR_REPLICA when the ranks have different weights, ERR_TSR_ARGUMENT
 *
 * @example
 * await broadcastWeights(model, group)
 */
export async function broadcastWeights(
  model: LayersModel,
  group: ProcessGroup,
  root = 0,
): Promise<void> {
  checkGroup(group)
  const weights = weightsOf(model)
  await compareParameters(
    weights.map(({ name, shape, variable: { shard } }) => ({ name, shape, shard })),
    group,
  )
  for (const { variable } of weights) {
    const options = { label: 'weights of the model' }
    const value = await broadcastTensor(group, variable.read(), root, options)
    if (group.rank !== root) variable.write(value)
    value.dispose()
  }
}
