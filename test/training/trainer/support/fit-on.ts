import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import { SGD, trainer, type FitOptions, type FitResult, type TrainerOptions } from '@tsrun/training'
import { dataset, quiet, recipe } from './small-training.ts'

/** Runs `fit` on every rank; the results, and the values of the parameters of rank 0. */
export async function fitOn(
  size: number,
  given: FitOptions | (() => FitOptions),
  how: TrainerOptions = {},
  stages = 1,
): Promise<{ results: FitResult[]; values: Float32Array[] }> {
  const ranks = await runWorld({ size, seed: size }, async (group) => {
    const optimizer = new SGD({ learningRate: 0.1, momentum: 0.9 })
    const mesh =
      stages === 1 ? group : await initDeviceMesh({ dp: size / stages, pp: stages }, group)
    const run = await trainer(recipe, { optimizer, ...how, mesh })
    const options = typeof given === 'function' ? given() : given
    const result = await run.fit(dataset, { batch: 8, ...quiet, ...options })
    const values = await run.gathered(() =>
      run.parameters.map(({ value }) => value.dataSync<'float32'>().slice()),
    )
    run.dispose()
    optimizer.dispose()
    return { result, values }
  })
  return { results: ranks.map(({ result }) => result), values: ranks[0]!.values }
}
