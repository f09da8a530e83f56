import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import { SGD, tf, trainer } from '@tsrun/training'
import {
  describeLosses,
  EXAMPLES,
  heavy,
  inputsAt,
  isUsual,
  OUTPUTS,
  recipe,
  STEPS,
  WIDTH,
} from './support/losses.ts'

describeLosses(isUsual)

it('a float16 wire carries the sums of a first step in which a pipeline has no example', async () => {
  const train = async (wire: 'float16' | 'float32') =>
    await runWorld({ size: 4, seed: 1 }, async (group) => {
      const mesh = await initDeviceMesh({ dp: 2, pp: 2 }, group)
      const optimizer = new SGD({ learningRate: 0.2 })
      const run = await trainer(recipe, { mesh, loss: heavy.loss, optimizer, wire })
      const size = run.share[0] === 0 ? EXAMPLES : 0
      const labels = () => tf.tensor(heavy.labels(1).values, [EXAMPLES, OUTPUTS, 2])
      const losses: number[] = []
      for (let step = 0; step < STEPS; step++) {
        const inputs = inputsAt(1).slice(0, size * WIDTH)
        losses.push((await run.step({ size, inputs, labels })).loss)
      }
      run.dispose()
      return losses
    })
  const [half, full] = [await train('float16'), await train('float32')]
  half.forEach((losses, rank) => {
    losses.forEach((loss, step) => {
      expect(loss).toBeCloseTo(full[rank]![step]!, 3)
    })
  })
})
