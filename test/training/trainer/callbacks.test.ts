import { runWorld } from '@tsrun/distributed'
import {
  earlyStopping,
  findRate,
  Linear,
  loadBackend,
  meanSquaredError,
  SGD,
  trainer,
  type AnyBatch,
  type Trainer,
} from '@tsrun/training'
import { failure } from '../parallel/support/failure.ts'

beforeAll(() => loadBackend('wasm'))

/** y = 2 x for pairs, as a regression. */
const batch: AnyBatch = {
  size: 4,
  inputs: Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8),
  labels: Float32Array.of(2, 4, 6, 8, 10, 12, 14, 16),
}

async function withRun(part: (run: Trainer) => Promise<void>): Promise<void> {
  await runWorld({ size: 1 }, async (group) => {
    const model = new Linear({ name: 'l', inputs: 2, outputs: 2 })
    const optimizer = new SGD({ learningRate: 0.01 })
    const run = await trainer(model, { mesh: group, optimizer, loss: meanSquaredError })
    await part(run)
    run.dispose()
  })
}

it('earlyStopping refuses a missing accuracy at the first evaluation', async () => {
  await withRun(async (run) => {
    const info = { ...(await run.evaluate(batch)), step: 1, isBest: true }
    expect(info.accuracy).toBeNaN()
    const call = () => earlyStopping({ metric: 'accuracy', patience: 3 }).onEvaluate!(info, run)
    expect(call).toThrow(failure('ERR_TSR_ARGUMENT', /accuracy.*'loss'/))
    expect(earlyStopping({ metric: 'loss' }).onEvaluate!(info, run)).toBeUndefined()
    const counted = { ...info, accuracy: 0.5 }
    expect(earlyStopping({ metric: 'accuracy' }).onEvaluate!(counted, run)).toBeUndefined()
  })
})

it('findRate suggests no rate below the first one', async () => {
  await withRun(async (run) => {
    const range = { from: 0.001, to: 0.002, steps: 5 }
    const { suggestion, curve } = await findRate(run, () => batch, range)
    expect(curve).toHaveLength(5)
    expect(suggestion).toBe(0.001)
  })
})
