import { runWorld } from '@tsrun/distributed'
import {
  columnParallel,
  Dropout,
  LayerNorm,
  Linear,
  loadBackend,
  parallelize,
  parametersOf,
  recordSegments,
  rowParallel,
  Sequential,
  sequenceParallel,
  tf,
  type LinearOptions,
  type Module,
  type Parameter,
  type Tensor,
} from '@tsrun/training'
import { onEach } from '../support/on-each.ts'

const plan = { up: columnParallel(), down: rowParallel() }

beforeAll(() => loadBackend('wasm'))

it('a dropout at two places of a model is sharded once, by the positions of its rank', async () => {
  const positions = await runWorld({ size: 2 }, (group) => {
    const dropout = new Dropout({ name: 'drop', rate: 0.5 })
    const norm = new LayerNorm({ name: 'norm', width: 4 })
    const model = new Sequential({ norm, drop_1: dropout, drop_2: dropout })
    parallelize(model, { norm: sequenceParallel() }, group)
    return Promise.resolve(Array.from(dropout.positions!(4)))
  })
  expect(positions).toEqual([
    [0, 1, 2, 3],
    [4, 5, 6, 7],
  ])
})

const layers = (options: Partial<LinearOptions> = {}) => ({
  up: new Linear({ name: 'up', inputs: 4, outputs: 8, ...options }),
  down: new Linear({ name: 'down', inputs: 8, outputs: 4, ...options }),
})

/** A module of a user, who may have forgotten that its children can be replaced. */
class Own implements Module {
  readonly children: Record<string, Module> = layers()
  get parameters(): readonly Parameter[] {
    return parametersOf(this.children)
  }
  forward(x: Tensor): Tensor {
    return this.children['down']!.forward(this.children['up']!.forward(x))
  }
}

class WithStaleParameters extends Own {
  readonly #all = Object.values(this.children).flatMap(({ parameters }) => parameters)
  override get parameters(): readonly Parameter[] {
    return this.#all
  }
}

class WithStaleLayers extends Own {
  readonly layers: readonly Module[] = Object.values(this.children)
}

describe('parallelize() of a custom module', () => {
  it.each<[string, () => Module, RegExp]>([
    [
      'parameters',
      () => new WithStaleParameters(),
      /the parameters of the model.*without the up\.weight.*parametersOf\(this\.children\)/,
    ],
    [
      'layers',
      () => new WithStaleLayers(),
      /the layers of the model.*a list with up.*get layers\(\)/,
    ],
    [
      'parameters of a child',
      () => new Sequential({ block: new WithStaleParameters() }),
      /the parameters of block/,
    ],
  ])('refuses a model if its %s are those from before sharding', async (_, make, message) => {
    const styles = { '**.up': columnParallel(), '**.down': rowParallel() }
    const errors = await onEach(2, (group) => {
      try {
        parallelize(make(), styles, group)
        return undefined
      } catch (error) {
        return error as Error & { code: string }
      }
    })
    for (const error of errors) {
      expect(error?.code).toBe('ERR_TSR_ARGUMENT')
      expect(error?.message).toMatch(message)
    }
  })

  it('accepts modules that read their children, and any module in a group of one rank', async () => {
    const [one] = await onEach(1, (group) => parallelize(new WithStaleLayers(), plan, group).layers)
    expect(one).toHaveLength(2)
    const counts = await onEach(2, (group) => parallelize(new Own(), plan, group).parameters.length)
    expect(counts).toEqual([4, 4])
  })
})

describe('layers without a bias or with other activations', () => {
  it.each([{ bias: false, activation: 'gelu' }, { bias: false }, { activation: 'tanh' }] as const)(
    'can be sharded over ranks: %j',
    async (options) => {
      const run = async (model: Module) => {
        const x = tf.tensor2d([1, -2, 3, 0.5, 2, 2, -1, 0], [2, 4])
        const pass = await recordSegments(model, x, { needsInputGradient: true })
        const names: string[] = []
        const dx = (await pass.backward(tf.ones([2, 4]), ({ name }) => names.push(name)))!
        return { y: [...pass.value.dataSync()], dx: [...dx.dataSync()], names: names.sort() }
      }
      const whole = await run(new Sequential(layers(options)))
      const parts = await runWorld({ size: 2, seed: 1 }, (group) =>
        run(parallelize(new Sequential(layers(options)), plan, group)),
      )
      for (const part of parts) {
        expect(part.names).toEqual(whole.names)
        for (const key of ['y', 'dx'] as const) {
          part[key].forEach((value, i) => {
            expect(value).toBeCloseTo(whole[key][i]!, 4)
          })
        }
      }
    },
  )
})
