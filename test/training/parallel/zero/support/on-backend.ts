import { runWorld } from '@tsrun/distributed'
import { Adam, loadBackend, tf, type FullyShardOptions } from '@tsrun/training'
import { build, trainReplica, trainSharded, type Training } from './training.ts'

/** On the backend that TSRUN_BACKEND names: whether all ways of sharding make the same steps. */
export async function compare(): Promise<readonly { how: FullyShardOptions; equal: boolean }[]> {
  const { name } = await loadBackend()
  if (name !== process.env['TSRUN_BACKEND']) throw new Error(`it is ${name}`)
  const training: Training = {
    steps: 4,
    optimizer: () => new Adam({ learningRate: 0.01 }),
    model: build,
  }
  const wanted = await runWorld({ size: 2, seed: 1 }, (group) => trainReplica(group, training, {}))
  const before = tf.memory().numTensors
  const found = []
  for (const how of [
    { stage: 1 },
    { stage: 2 },
    { stage: 3 },
    { stage: 3, recompute: true },
  ] satisfies FullyShardOptions[]) {
    const trained = await runWorld({ size: 2, seed: 2 }, (group) =>
      trainSharded(group, group, training, how),
    )
    found.push({ how, equal: JSON.stringify(trained) === JSON.stringify(wanted) })
  }
  // what is left are the moments of optimizers, where those are tensors
  const left = tf.memory().numTensors - before
  const parameters = build().parameters.length
  if (left > 4 * 2 * 2 * parameters) throw new Error(`${left} tensors are left`)
  return found
}
