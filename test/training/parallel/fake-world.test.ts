import { destroyProcessGroup, initProcessGroup, type ProcessGroup } from '@tsrun/distributed'
import {
  allGatherTensor,
  columnParallel,
  crossEntropy,
  disposeModule,
  loadBackend,
  meanSquaredError,
  parallelize,
  pipeline,
  recordLoss,
  recordModule,
  recvTensor,
  rowParallel,
  sendTensor,
  shardedMLP,
  sumInto,
  tf,
  type Module,
  type Tensor,
} from '@tsrun/training'

const ROWS = 3

/** Runs one rank of two, without the other. */
async function alone(rank: number, program: (group: ProcessGroup) => Promise<void>): Promise<void> {
  const before = tf.memory().numTensors
  const options = { transport: 'fake', rank, worldSize: 2, arena: 16 * 1024 * 1024 } as const
  await program(await initProcessGroup(options))
  await destroyProcessGroup()
  expect(tf.memory().numTensors).toBe(before)
}

function valuesOf({ parameters }: Module): Record<string, Tensor> {
  return Object.fromEntries(parameters.map(({ name, value }) => [name, value]))
}

describe('one rank of two, stepped alone in a world with the transport fake', () => {
  beforeAll(async () => {
    await loadBackend('cpu')
  })

  const recipe = shardedMLP({ layers: 4, inputs: 6, hidden: 8, outputs: 4 })

  it('a first stage of a pipeline gets a gradient of zeros', async () => {
    await alone(0, async (group) => {
      const stage = recipe.slice(0, 2)
      const x = tf.ones([ROWS, 6])
      const pass = recordModule(stage, x, { needsInputGradient: false })
      await sendTensor(group, pass.value, group.next)
      const dy = await recvTensor(group, pass.value.shape, group.next)
      const gradients = new Map<string, Tensor>()
      pass.backward(dy, sumInto(gradients))
      expect([...gradients.keys()].sort()).toEqual(stage.parameters.map(({ name }) => name).sort())
      for (const gradient of gradients.values()) {
        expect(gradient.dataSync().every((value) => value === 0)).toBe(true)
      }
      tf.dispose([x, dy, ...gradients.values()])
      pass.dispose()
      disposeModule(stage)
    })
  })

  it('a last stage of a pipeline gets activations of zeros', async () => {
    await alone(1, async (group) => {
      const stage = recipe.slice(2, 4)
      const targets = tf.ones([ROWS, 4])
      const one = tf.scalar(1)
      const x = await recvTensor(group, [ROWS, 8], group.previous)
      const pass = recordModule(stage, x, { needsInputGradient: true })
      const loss = recordLoss(meanSquaredError, pass.value, targets)
      const dy = loss.backward(one, () => undefined)!
      const gradients = new Map<string, Tensor>()
      const dx = pass.backward(dy, sumInto(gradients))!
      await sendTensor(group, dx, group.previous)

      const expected = tf.tidy(() => {
        const { ['layers.2.bias']: bias, ['layers.3.bias']: last } = valuesOf(stage)
        const { ['layers.3.weight']: weight } = valuesOf(stage)
        const h = tf.reshape(tf.relu(bias!), [1, -1])
        return tf.mean(tf.square(tf.sub(tf.add(tf.matMul(h, weight!), last!), 1))).dataSync()[0]!
      })
      expect(loss.value.dataSync()[0]).toBeCloseTo(expected, 5)
      expect(gradients.get('layers.3.weight')!.shape).toEqual([8, 4])
      expect(dx.shape).toEqual([ROWS, 8])
      tf.dispose([targets, one, x, dy, dx, ...gradients.values()])
      pass.dispose()
      loss.dispose()
      disposeModule(stage)
    })
  })

  it('the first stage of `pipeline` trains, and a later one is refused', async () => {
    const outcomes: unknown[] = []
    for (const rank of [0, 1]) {
      await alone(rank, async (group) => {
        const pipe = pipeline(recipe, group, {
          schedule: 'gpipe',
          microbatches: 2,
          loss: crossEntropy,
        })
        const [inputs, labels] = [tf.ones([4, 6]), tf.tensor([0, 1, 2, 3], [4], 'int32')]
        try {
          const { gradients } = await pipe.forwardBackward({ inputs, labels })
          outcomes.push(gradients.size)
          tf.dispose([...gradients.values()])
        } catch (error) {
          outcomes.push((error as Error).message)
        }
        tf.dispose([inputs, labels])
        pipe.dispose()
      })
    }
    expect(outcomes).toEqual([4, expect.stringContaining('group is of a fake world; expected one')])
  })

  it('a tensor parallel model adds its own part once for each rank', async () => {
    await alone(1, async (group) => {
      const whole = shardedMLP({ layers: 2, inputs: 6, hidden: 8, outputs: 4 }).build()
      const plan = { 'layers.0': columnParallel(), 'layers.1': rowParallel() }
      const model = parallelize(whole, plan, group)
      const x = tf.tensor(
        Array.from({ length: ROWS * 6 }, (_, i) => Math.sin(i)),
        [ROWS, 6],
      )
      const pass = recordModule(model, x, { needsInputGradient: true })
      const dy = tf.onesLike(pass.value)
      const gradients = new Map<string, Tensor>()
      const dx = pass.backward(dy, sumInto(gradients))!

      const values = valuesOf(model)
      const weight = (layer: number): Tensor => values[`layers.${layer}.weight`]!
      const [h, y, gradient] = tf.tidy(() => {
        const hidden = tf.add(tf.matMul(x, weight(0)), values['layers.0.bias']!)
        const product = tf.matMul(tf.relu(hidden), weight(1))
        const dHidden = tf.mul(tf.matMul(dy, weight(1), false, true), tf.step(hidden))
        return [
          tf.relu(hidden),
          tf.add(tf.mul(product, 2), values['layers.1.bias']!),
          tf.mul(tf.matMul(dHidden, weight(0), false, true), 2),
        ] as const
      })
      expect(weight(0).shape).toEqual([6, 4])
      expectClose(pass.value, y)
      expectClose(dx, gradient)

      const gathered = await allGatherTensor(group, h, { axis: 1 })
      const twice = tf.concat([h, h], 1)
      expectClose(gathered, twice)
      tf.dispose([x, dy, dx, h, y, gradient, gathered, twice, ...gradients.values()])
      pass.dispose()
      disposeModule(model)
    })
  })
})

function expectClose(found: Tensor, expected: Tensor): void {
  expect(found.shape).toEqual(expected.shape)
  const wanted = expected.dataSync()
  found.dataSync().forEach((value, i) => {
    expect(value).toBeCloseTo(wanted[i]!, 5)
  })
}
