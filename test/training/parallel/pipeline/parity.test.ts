import { runWorld } from '@tsrun/distributed'
import { loadBackend, pipeline, SGD, shardedMLP } from '@tsrun/training'
import { usualConfigurations } from '../support/configurations.ts'
import { exampleBatch, excess, singleProcessStep } from '../support/reference.ts'
import { describeParity } from './support/parity.ts'

describeParity(usualConfigurations, 4)

// This backend hands out its tensors' own memory: a message must never live on in a buffer.
it('a pipeline on the cpu backend trains like a single process', async () => {
  await loadBackend('cpu')
  const [size, classes] = [10, 3]
  const model = shardedMLP({ layers: 4, inputs: 6, hidden: 8, outputs: classes })
  const whole = model.build()
  const optimizer = new SGD({ learningRate: 0.1 })
  const wanted = Array.from({ length: 5 }, (_, step) =>
    singleProcessStep(whole, exampleBatch(step, size, 6, classes), optimizer),
  )
  const ranks = await runWorld({ size: 3, seed: 5 }, async (group) => {
    const pipe = pipeline(model, group, {
      microbatches: 4,
      optimizer: new SGD({ learningRate: 0.1 }),
    })
    const losses: number[] = []
    for (let step = 0; step < 5; step++) {
      losses.push((await pipe.step({ size, ...exampleBatch(step, size, 6, classes) })).loss)
    }
    return losses
  })
  const losses = { loss: Float32Array.from(wanted, ({ loss }) => loss) }
  for (const rank of ranks) {
    expect(excess({ loss: Float32Array.from(rank) }, losses)).toBeLessThanOrEqual(0)
  }
})
