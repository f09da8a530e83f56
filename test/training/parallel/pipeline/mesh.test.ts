import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import {
  dataParallel,
  disposeModule,
  loadBackend,
  pipeline,
  SGD,
  shardedMLP,
  tf,
  type Tensor,
} from '@tsrun/training'
import {
  exampleBatch,
  excess,
  parameterValues,
  singleProcessStep,
  values,
  type Values,
} from '../support/reference.ts'

const [INPUTS, CLASSES, BATCH, STEPS] = [8, 3, 16, 20]
const model = shardedMLP({ layers: 4, inputs: INPUTS, hidden: 10, outputs: CLASSES })
const examples = (size: number) => ({ size, ...exampleBatch(0, size, INPUTS, CLASSES) })

beforeAll(async () => {
  await loadBackend('wasm')
})

describe('a pipeline on one axis of a mesh', () => {
  it('runs beside other pipelines, and its spans name the ranks of the world', async () => {
    const ranks = await runWorld({ size: 4, seed: 2 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, pp: 2 }, world)
      const pipe = pipeline(model, mesh.pp, { optimizer: new SGD({ learningRate: 0.1 }) })
      const { loss } = await pipe.step(examples(8))
      const spans = pipe.recorder.spans()
      pipe.dispose()
      return { loss, ranks: new Set(spans.flatMap(({ rank, peer }) => [rank, peer ?? rank])) }
    })
    expect(new Set(ranks.map(({ loss }) => loss)).size).toBe(1)
    expect(ranks.map((rank) => [...rank.ranks].sort())).toEqual([
      [0, 1],
      [0, 1],
      [2, 3],
      [2, 3],
    ])
  })
})

/** Rows [from, to) of a batch. */
function part(step: number, from: number, to: number) {
  const { inputs, labels } = exampleBatch(step, BATCH, INPUTS, CLASSES)
  const rows = (make: () => Tensor) => () => tf.tidy(() => tf.slice(make(), from, to - from))
  return { size: to - from, inputs: rows(inputs), labels: rows(labels) }
}

describe('replicas of a pipeline', () => {
  it.each([
    { dp: 2, pp: 2, schedule: '1f1b' },
    { dp: 3, pp: 2, schedule: 'gpipe' },
    { dp: 2, pp: 2, schedule: 'interleaved' },
  ] as const)('train like a single process: dp $dp, pp $pp, $schedule', async (layout) => {
    const { dp, pp, schedule } = layout
    const before = tf.memory().numTensors
    const ranks = await runWorld({ size: dp * pp, seed: 6 }, async (world) => {
      const mesh = await initDeviceMesh({ dp, pp }, world)
      const pipe = pipeline(model, mesh.pp, { schedule, microbatches: 4 })
      const replica = await dataParallel(pipe, mesh.dp, { reduction: 'token' })
      const optimizer = new SGD({ learningRate: 0.1 })
      const seen: { gradients: Values; parameters: Values }[] = []
      const share = [0, 1].map((k) => Math.floor(((mesh.dp.rank + k) * BATCH) / dp))
      const [from, to] = share as [number, number]
      const rows = to - from
      for (let step = 0; step < STEPS; step++) {
        const { gradients } = await pipe.forwardBackward(part(step, from, to))
        for (const parameter of pipe.parameters) {
          // of the mean over this replica's rows: back to their sum
          const mean = gradients.get(parameter.name)!
          replica.onGradient(parameter, tf.keep(tf.mul(mean, rows)))
          mean.dispose()
        }
        const averaged = await replica.gradients(rows)
        const taken = values(averaged)
        optimizer.step(pipe.parameters, averaged)
        seen.push({ gradients: taken, parameters: parameterValues(pipe) })
      }
      replica.dispose()
      pipe.dispose()
      return seen
    })
    const single = model.build()
    const optimizer = new SGD({ learningRate: 0.1 })
    for (let step = 0; step < STEPS; step++) {
      const batch = exampleBatch(step, BATCH, INPUTS, CLASSES)
      const wanted = singleProcessStep(single, batch, optimizer)
      for (let replica = 0; replica < dp; replica++) {
        const stages = ranks.slice(replica * pp, (replica + 1) * pp).map((seen) => seen[step]!)
        const gradients = Object.assign({}, ...stages.map((stage) => stage.gradients)) as Values
        const parameters = Object.assign({}, ...stages.map((stage) => stage.parameters)) as Values
        expect(excess(gradients, wanted.gradients)).toBeLessThanOrEqual(0)
        expect(excess(parameters, wanted.parameters)).toBeLessThanOrEqual(0)
      }
    }
    disposeModule(single)
    expect(tf.memory().numTensors).toBe(before)
  })
})
