import type { ProcessGroup } from '@tsrun/distributed'

/** What `fit` and `new CustomCallback` of tf.layers take. */
export interface MetricsCallback {
  onEpochEnd(epoch: number, logs?: Record<string, unknown>): Promise<void>
}

/**
 * Makes the loss and the metrics of `fit` the same on all ranks (as Horovod's MetricAverageCallback):
 * each becomes the mean of the ranks', before the callbacks behind it and the history see it. So all
 * stop early at the same epoch, or none. All ranks fit equally many epochs with the same metrics.
 *
 * @example
 * const average = new tfjs.CustomCallback(averageMetrics(group))
 * const patient = tfjs.callbacks.earlyStopping({ monitor: 'val_loss', patience: 2 })
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
