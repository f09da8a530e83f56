import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { gpt } from '@tsrun/models'
import {
  dataParallel,
  fullyShard,
  Linear,
  loadBackend,
  record,
  SGD,
  sumInto,
  tf,
  type Module,
  type ZeroStage,
  type Tensor,
} from '@tsrun/training'
import { excess, parameterValues, type Values } from '../support/reference.ts'
import { part, recorded, runPass, shareOf, wholeValues } from './support/training.ts'

beforeAll(async () => {
  await loadBackend('wasm')
})

/** A model that uses its first weight again at its end, and does not say that it is a chain. */
class Tied implements Module {
  readonly first = new Linear({ name: 'first', inputs: 12, outputs: 4, seed: 3 })
  readonly last = new Linear({ name: 'last', inputs: 12, outputs: 4, seed: 3 })
  readonly chain: readonly Module[]

  constructor() {
    const { weight } = this.first
    const back: Module = {
      parameters: [weight],
      forward: (x) => tf.matMul(x, weight.value, false, true),
    }
    this.chain = [this.first, back, this.last]
  }

  get parameters() {
    return [...this.first.parameters, ...this.last.parameters]
  }

  forward(x: Tensor): Tensor {
    return this.chain.reduce((h, link) => link.forward(h), x)
  }
}

/** The same model, as a chain of units. */
class TiedChain extends Tied {
  get layers(): readonly Module[] {
    return this.chain
  }
}

describe('a parameter that several units use', () => {
  const alone = async (group: ProcessGroup): Promise<Values> => {
    const model = new Tied()
    const { parameters } = model
    const optimizer = new SGD({ learningRate: 0.1 })
    for (let step = 0; step < 3; step++) {
      const gradients = new Map<string, Tensor>()
      await runPass(part(step, ...shareOf(group.rank, group.size)), (x) => {
        const forward = (input: Tensor): Tensor => model.forward(input)
        const recording = record(forward, x, parameters, { needsInputGradient: false })
        return { ...recording, backward: (dy) => recording.backward(dy, sumInto(gradients)) }
      })
      optimizer.step(parameters, gradients)
    }
    return parameterValues(model)
  }

  const shared = async (
    group: ProcessGroup,
    stage: ZeroStage,
    byUnits: boolean,
  ): Promise<Values> => {
    const model = byUnits ? new TiedChain() : new Tied()
    const sharded = await fullyShard(model, group, { stage })
    const optimizer = new SGD({ learningRate: 0.1 })
    for (let step = 0; step < 3; step++) {
      await runPass(part(step, ...shareOf(group.rank, group.size)), (x) => sharded.record(x))
      await sharded.step(optimizer, await sharded.gradients())
    }
    return await wholeValues(sharded)
  }

  it.each([
    { stage: 1, byUnits: false },
    { stage: 2, byUnits: false },
    { stage: 3, byUnits: false },
    { stage: 3, byUnits: true },
  ] as const)('is summed once, as in a single process: %j', async ({ stage, byUnits }) => {
    const [wanted] = await runWorld({ size: 1 }, alone)
    const ranks = await runWorld({ size: 2, seed: 5 }, (group) => shared(group, stage, byUnits))
    for (const values of ranks) expect(excess(values, wanted!)).toBeLessThanOrEqual(0)
  })
})

describe.each([false, true])('a GPT (tied weights: %s)', (tied) => {
  it.each([1, 2, 3] as const)(
    'trains in ZeRO stage %i like data parallel replicas',
    async (stage) => {
      const [batch, length] = [4, 8]
      const sizes = { vocabulary: 11, block: length, layers: 2, heads: 2, width: 8, tied }
      const ids = (rank: number): Tensor =>
        tf.tensor2d(
          Array.from({ length: batch * length }, (_, i) => (i * i + 3 * rank) % 11),
          [batch, length],
          'int32',
        )
      const pass = (group: ProcessGroup) => ({
        inputs: ids(group.rank),
        labels: ids(group.rank + 1),
      })
      const train = async (group: ProcessGroup, whole: boolean): Promise<Values> => {
        const model = gpt(sizes).build()
        const optimizer = new SGD({ learningRate: 0.5 })
        const replica = whole ? await dataParallel(model, group) : undefined
        const sharded = whole ? undefined : await fullyShard(model, group, { stage })
        for (let step = 0; step < 5; step++) {
          if (replica !== undefined) {
            await runPass(pass(group), (x) => recorded(model, x, replica.onGradient))
            optimizer.step(model.parameters, await replica.gradients())
          }
          if (sharded !== undefined) {
            await runPass(pass(group), (x) => sharded.record(x))
            await sharded.step(optimizer, await sharded.gradients())
          }
        }
        return sharded === undefined ? parameterValues(model) : await wholeValues(sharded)
      }
      const [wanted] = await runWorld({ size: 2, seed: 4 }, (group) => train(group, true))
      for (const values of await runWorld({ size: 2, seed: 5 }, (group) => train(group, false))) {
        expect(values).toEqual(wanted)
      }
    },
  )
})
