import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import {
  Adam,
  clipGradients,
  disposeModule,
  fullyShard,
  loadBackend,
  pipeline,
  shardedMLP,
  tf,
  type Optimizer,
  type Tensor,
} from '@tsrun/training'
import { exampleBatch, excess, parameterValues, type Values } from '../support/reference.ts'
import { recorded, runPass } from './support/training.ts'

const [INPUTS, CLASSES, BATCH, STEPS] = [8, 3, 16, 10]
const model = shardedMLP({ layers: 4, inputs: INPUTS, hidden: 10, outputs: CLASSES })
const makeOptimizer = (): Optimizer => new Adam({ learningRate: 0.01 })
const MAX_NORM = 0.5

beforeAll(async () => {
  await loadBackend('wasm')
})

/** Rows [from, to) of a batch. */
function part(step: number, from: number, to: number) {
  const { inputs, labels } = exampleBatch(step, BATCH, INPUTS, CLASSES)
  const rows = (make: () => Tensor) => () => tf.tidy(() => tf.slice(make(), from, to - from))
  return { size: to - from, inputs: rows(inputs), labels: rows(labels) }
}

async function trainAlone(): Promise<Values[]> {
  const module = model.build()
  const optimizer = makeOptimizer()
  const seen: Values[] = []
  for (let step = 0; step < STEPS; step++) {
    const { inputs, labels } = part(step, 0, BATCH)
    const gradients = new Map<string, Tensor>()
    await runPass({ inputs: inputs(), labels: labels() }, (x) =>
      recorded(module, x, ({ name }, gradient) => gradients.set(name, gradient)),
    )
    await clipGradients(module.parameters, gradients, { maxNorm: MAX_NORM })
    optimizer.step(module.parameters, gradients)
    seen.push(parameterValues(module))
  }
  disposeModule(module)
  return seen
}

describe('pipeline replicas with sharded state', () => {
  it.each([1, 2, 3] as const)('train like a single process, in ZeRO stage %i', async (stage) => {
    const [dp, pp] = [2, 2]
    const ranks = await runWorld({ size: dp * pp, seed: 6 }, async (world) => {
      const mesh = await initDeviceMesh({ dp, pp }, world)
      const pipe = pipeline(model, mesh.pp, { schedule: '1f1b', microbatches: 4 })
      const sharded = await fullyShard(pipe, mesh.dp, { stage })
      const optimizer = makeOptimizer()
      const seen: Values[] = []
      const share = BATCH / dp
      for (let step = 0; step < STEPS; step++) {
        const rows = part(step, mesh.dp.rank * share, (mesh.dp.rank + 1) * share)
        await sharded.gather()
        const { gradients } = await pipe.forwardBackward(rows)
        for (const parameter of pipe.parameters) {
          sharded.onGradient(parameter, gradients.get(parameter.name)!)
        }
        sharded.release()
        const shares = await sharded.gradients()
        await clipGradients(sharded.shards, shares, {
          maxNorm: MAX_NORM,
          shard: mesh.dp,
          pipeline: mesh.pp,
        })
        await sharded.step(optimizer, shares)
        await sharded.gather()
        seen.push(parameterValues(pipe))
        sharded.release()
      }
      sharded.dispose()
      pipe.dispose()
      return seen
    })
    const wanted = await trainAlone()
    for (let replica = 0; replica < dp; replica++) {
      const stages = ranks.slice(replica * pp, (replica + 1) * pp)
      for (const [step, values] of wanted.entries()) {
        const found = Object.assign({}, ...stages.map((seen) => seen[step])) as Values
        // Adam divides by what may be small
        expect(excess(found, values, 1e-4, 1e-5)).toBeLessThanOrEqual(0)
      }
    }
  })
})
