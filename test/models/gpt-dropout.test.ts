import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import { GPT, gpt, type GPTOptions } from '@tsrun/models'
import {
  Block,
  CausalSelfAttention,
  inPass,
  loadBackend,
  recordModule,
  SGD,
  tf,
  trainer,
  type MeshShape,
  type Tensor,
  type TrainerOptions,
} from '@tsrun/training'
import { livelyGpt, small, tokenBatch } from '../training/nn/support/tokens.ts'

const rates = {
  embeddingDropout: { embeddingDropout: 0.3 },
  attentionDropout: { attentionDropout: 0.3 },
  residualDropout: { residualDropout: 0.3 },
}
const all = { ...rates.embeddingDropout, ...rates.attentionDropout, ...rates.residualDropout }
const [SEQUENCES, STEPS] = [4, 3]

describe.each(['wasm', 'cpu'] as const)('dropout of a GPT on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  const scoresOf = (options: GPTOptions, training: boolean, step = 0) => {
    const [model, { inputs }] = [
      livelyGpt(options),
      tokenBatch(0, 3, small.block, small.vocabulary),
    ]
    return tf.tidy(() => inPass({ training, step }, () => [...model.forward(inputs()).dataSync()]))
  }

  it.each(Object.entries(rates))(
    'changes the results of training in each step: %s',
    (_, options) => {
      const plain = scoresOf({}, false)
      expect(scoresOf(options, false)).toEqual(plain)
      expect(scoresOf(options, true)).not.toEqual(plain)
      expect(scoresOf(options, true)).toEqual(scoresOf(options, true))
      expect(scoresOf(options, true, 1)).not.toEqual(scoresOf(options, true))
    },
  )

  it('in attention preserves the expected output, and has the gradient of its definition', () => {
    const [length, width, heads] = [5, 6, 2]
    const layer = new CausalSelfAttention({
      name: 'a',
      width,
      heads,
      attentionDropout: 0.4,
      deviation: 1,
    })
    const x = tf.sin(tf.reshape(tf.range(0, 2 * length * width), [2, length, width]))
    const plain = layer.forward(x)
    const STEPS = 800
    const mean = tf.tidy(() => {
      let sum: Tensor = tf.zerosLike(plain)
      for (let step = 0; step < STEPS; step++) {
        sum = inPass({ training: true, step }, () => tf.add(sum, layer.forward(x)))
      }
      return tf.div(sum, STEPS)
    })
    const distance = (y: Tensor) => tf.norm(tf.sub(y, plain)).dataSync()[0]!
    const single = inPass({ training: true, step: 0 }, () => layer.forward(x))
    // a deviation of about 1 / sqrt(800) of that of a single pass
    expect(distance(mean)).toBeLessThan(0.07 * distance(single))

    const pass = { training: true, step: 7 }
    const weights = tf.cos(tf.reshape(tf.range(0, plain.size), plain.shape))
    const recording = inPass(pass, () => recordModule(layer, x, { needsInputGradient: true }))
    const dx = recording.backward(weights, () => undefined)!.dataSync()
    const valueAt = (i: number, by: number) => {
      const moved = x.dataSync<'float32'>().slice()
      moved[i]! += by
      const y = inPass(pass, () => layer.forward(tf.tensor(moved, x.shape)))
      return tf.sum(tf.mul(y, weights)).dataSync()[0]!
    }
    for (let i = 0; i < x.size; i += 7) {
      expect(dx[i]).toBeCloseTo((valueAt(i, 0.01) - valueAt(i, -0.01)) / 0.02, 1)
    }
  })
})

describe('a GPT with dropout', () => {
  beforeAll(() => loadBackend('wasm'))

  it('has the children and parameters of a GPT without dropout if the rates are 0', () => {
    const none = new GPT({ ...small, residualDropout: 0, embeddingDropout: 0, attentionDropout: 0 })
    expect(Object.keys(none.children)).toEqual(['wte', 'wpe', 'h.0', 'h.1', 'ln_f', 'lm_head'])
  })

  it('refuses invalid rates', () => {
    expect(() => gpt({ attentionDropout: 1 })).toThrow(/attentionDropout is 1; expected at least 0/)
    expect(() => new GPT({ residualDropout: -0.1 })).toThrow(/residualDropout is -0.1/)
    const block = { name: 'h.0', width: 8, heads: 2 }
    for (const rate of [1, 1.5, -0.5, NaN]) {
      const attention = () => new CausalSelfAttention({ ...block, attentionDropout: rate })
      expect(attention).toThrow(`attentionDropout is ${rate}; expected at least 0`)
      expect(() => new Block({ ...block, residualDropout: rate })).toThrow(
        `residualDropout is ${rate}; expected at least 0`,
      )
    }
  })

  async function lossesOn(options: GPTOptions, shape: MeshShape, more: TrainerOptions = {}) {
    const size = Object.values(shape).reduce((product, axis) => product * axis, 1)
    const ranks = await runWorld({ size, seed: 4 }, async (group) => {
      const axes: Record<string, number> = { dp: 1, ...shape }
      const mesh = await initDeviceMesh(axes, group)
      const recipe = gpt({ ...small, deviation: 0.3, ...options })
      const optimizer = new SGD({ learningRate: 0.2 })
      const run = await trainer(recipe, { mesh, optimizer, ...more })
      const [index, count] = run.share
      const rows = SEQUENCES / count
      const batch = (step: number) => {
        const whole = tokenBatch(step, SEQUENCES, small.block, small.vocabulary)
        const own = (x: Tensor) => tf.slice(x, [index * rows, 0], [rows, small.block])
        return { size: rows, inputs: () => own(whole.inputs()), labels: () => own(whole.labels()) }
      }
      const losses: number[] = []
      for (let step = 0; step < STEPS; step++) losses.push((await run.step(batch(step))).loss)
      losses.push((await run.evaluate(batch(STEPS))).loss)
      run.dispose()
      return losses
    })
    return ranks[0]!
  }

  let plain: readonly number[]
  let alone: readonly number[]
  beforeAll(async () => {
    plain = await lossesOn({}, {})
    alone = await lossesOn(all, {})
  })

  it.each(Object.entries(rates))(
    'trains differently from a GPT without dropout: %s',
    async (_, options) => {
      const dropped = await lossesOn(options, {})
      expect(Math.abs(dropped[0]! - plain[0]!)).toBeGreaterThan(1e-3)
    },
  )

  it.each<[string, MeshShape, TrainerOptions]>([
    ['replicas', { dp: 2 }, {}],
    ['accumulation', {}, { accumulate: 2 }],
    ['recomputation', {}, { recompute: true }],
    ['ZeRO 3', { dp: 2 }, { zero: 3 }],
    ['a pipeline', { pp: 2 }, { microbatches: 4 }],
    ['a zero-bubble pipeline that recomputes', { pp: 2 }, { schedule: 'zb-h1', recompute: true }],
    ['replicas of a pipeline', { dp: 2, pp: 2 }, { microbatches: 2 }],
  ])('drops the same values as in a single process: %s', async (_, shape, options) => {
    const together = await lossesOn(all, shape, options)
    together.forEach((loss, step) => {
      expect(Math.abs(loss - alone[step]!)).toBeLessThan(2e-5)
    })
  })
})
