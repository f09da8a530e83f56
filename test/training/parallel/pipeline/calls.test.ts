import { runWorld } from '@tsrun/distributed'
import { gpt } from '@tsrun/models'
import { parseSchedule } from '@tsrun/training/planning'
import {
  loadBackend,
  pipeline,
  SGD,
  tf,
  type Loss,
  type Module,
  type PipelineOptions,
  type Tensor,
} from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { examples, model, onRanks } from '../support/small-pipeline.ts'

beforeAll(async () => {
  await loadBackend('wasm')
})

/** Texts of `length` tokens. */
function text(length: number) {
  const tokens = () => tf.tensor2d(new Int32Array(4 * length).fill(1), [4, length], 'int32')
  return { size: 4, inputs: tokens, labels: tokens }
}

describe('batches of different lengths', () => {
  it.each<[number, PipelineOptions]>([
    [1, {}],
    [3, { schedule: '1f1b' }],
    [2, { schedule: 'interleaved' }],
    [2, { schedule: 'zb-h1', recompute: true }],
  ])('may follow each other: %i ranks, %o', async (size, options) => {
    const recipe = gpt({ layers: 4, width: 8, heads: 2, block: 9, vocabulary: 5, seed: 1 })
    const losses = async (ranks: number, settings: PipelineOptions) => {
      const all = await runWorld({ size: ranks, seed: 2 }, async (group) => {
        const optimizer = new SGD({ learningRate: 0.1 })
        const pipe = pipeline(recipe, group, { microbatches: 2, optimizer, ...settings })
        const seen: number[] = []
        for (const length of [8, 4, 4, 6]) {
          seen.push((await pipe.step(text(length))).loss)
          seen.push((await pipe.evaluate(text(length + 1))).loss)
        }
        pipe.dispose()
        return seen
      })
      return all[0]!
    }
    const wanted = await losses(1, {})
    const found = await losses(size, options)
    found.forEach((loss, i) => {
      expect(loss).toBeCloseTo(wanted[i]!, 5)
    })
  })
})

it('a pipeline reports that its ranks have batches of different sizes', async () => {
  const errors = await runWorld({ size: 2, seed: 2 }, async (group) => {
    const pipe = pipeline(model, group, { optimizer: new SGD({ learningRate: 0.1 }) })
    return await pipe.step(examples(8 + 4 * group.rank)).catch((error: unknown) => error)
  })
  expect(errors).toContainEqual(
    failure('ERR_TSR_MISMATCH', /(activation|gradient) of micro-batch 0 for stage [01]/),
  )
})

describe('a pipeline', () => {
  it('refuses a call while another call runs, which continues', async () => {
    await onRanks(2, { optimizer: new SGD({ learningRate: 0.1 }) }, async (pipe) => {
      const first = pipe.step(examples(8))
      await expect(pipe.step(examples(8))).rejects.toEqual(
        failure('ERR_TSR_PIPELINE_BUSY', /: step of .* during its step/),
      )
      await expect(pipe.evaluate(examples(8))).rejects.toEqual(
        failure('ERR_TSR_PIPELINE_BUSY', /: evaluate of .* during its step/),
      )
      expect((await first).loss).toBeGreaterThan(0)
      expect((await pipe.evaluate(examples(8))).loss).toBeGreaterThan(0)
    })
  })

  it.each<[string, object, RegExp]>([
    ['an unknown option', { microbatch: 99 }, /the unknown key "microbatch"; expected only/],
    [
      'another number of micro-batches than in its lists',
      { schedule: parseSchedule('0F0 0B0 0F1 0B1'), microbatches: 8 },
      /microbatches is 8; expected 2, as in the schedule/,
    ],
  ])('refuses %s', async (_, options, message) => {
    await expect(onRanks(1, options, () => Promise.resolve())).rejects.toEqual(
      failure('ERR_TSR_ARGUMENT', message),
    )
  })

  it('takes the number of micro-batches from its action lists', async () => {
    const options = { schedule: parseSchedule('0F0 0B0 0F1 0B1'), microbatches: 2 }
    await onRanks(1, options, () => Promise.resolve())
  })
})

describe('a disposed pipeline', () => {
  const no = (): never => {
    throw new Error('no')
  }
  const failingLoss: Loss = no
  const failingBackward: Loss = Object.assign((outputs: Tensor) => tf.sum(outputs), {
    record: (outputs: Tensor) => {
      const value = tf.tidy(() => tf.sum(outputs))
      return {
        value,
        backward: no,
        dispose: () => {
          value.dispose()
        },
      }
    },
  })
  const lastFails = (fail: 'forward' | 'backward') => ({
    layers: 4,
    slice: (from: number, to: number): Module => {
      const module = model.slice(from, to)
      if (to < 4) return module
      const backward = tf.customGrad((x) => ({ value: tf.clone(x as Tensor), gradFunc: no }))
      return {
        parameters: module.parameters,
        forward: (x) => (fail === 'forward' ? no() : backward(module.forward(x))),
      }
    },
  })
  const fails = async (run: Promise<unknown>) => {
    await expect(run).rejects.toThrow()
  }

  it.each<[string, PipelineOptions, Parameters<typeof pipeline>[0]]>([
    ['a loss', { loss: failingLoss }, model],
    ['a backward pass of a loss', { loss: failingBackward }, model],
    ['a layer', {}, lastFails('forward')],
    ['a backward pass of a layer', {}, lastFails('backward')],
    ['a backward pass of a layer, in halves', { schedule: 'zb-h1' }, lastFails('backward')],
    ['a layer of the second chunk', { schedule: 'looped' }, lastFails('forward')],
    ['a loss after the second chunk', { schedule: 'interleaved', loss: failingLoss }, model],
  ])('leaks no tensor after a failure of %s', async (_, options, recipe) => {
    const before = tf.memory().numTensors
    await runWorld({ size: 1 }, async (group) => {
      const pipe = pipeline(recipe, group, { microbatches: 2, ...options })
      await fails(pipe.forwardBackward(examples(8)))
      pipe.dispose()
    })
    expect(tf.memory().numTensors).toBe(before)
  })

  it('leaks no tensor after a failure of a loss in evaluate()', async () => {
    const before = tf.memory().numTensors
    await onRanks(1, { loss: failingLoss, schedule: 'looped' }, async (pipe) => {
      await fails(pipe.evaluate(examples(8)))
    })
    expect(tf.memory().numTensors).toBe(before)
  })
})
