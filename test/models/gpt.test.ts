import { runWorld } from '@tsrun/distributed'
import { GPT, gpt } from '@tsrun/models'
import {
  countCorrect,
  disposeModule,
  loadBackend,
  pipeline,
  replaceValue,
  SGD,
  tf,
} from '@tsrun/training'
import {
  excess,
  parameterValues,
  singleProcessStep,
  values,
} from '../training/parallel/support/reference.ts'
import { gradientsOf, livelyGpt, lossOf, small, tokenBatch } from '../training/nn/support/tokens.ts'

const bits = (model: GPT) => model.parameters.map(({ name, value }) => [name, ...value.dataSync()])

describe('GPT', () => {
  beforeAll(() => loadBackend('wasm'))

  it('gives its parameters the names in GPT-2 files', () => {
    const model = new GPT({ ...small, layers: 1 })
    expect(model.parameters.map(({ name, shape }) => `${name} ${shape.join('x')}`)).toEqual([
      'wte.weight 11x8',
      'wpe.weight 6x8',
      'h.0.ln_1.weight 8',
      'h.0.ln_1.bias 8',
      'h.0.attn.c_attn.weight 8x3x8',
      'h.0.attn.c_attn.bias 3x8',
      'h.0.attn.c_proj.weight 8x8',
      'h.0.attn.c_proj.bias 8',
      'h.0.ln_2.weight 8',
      'h.0.ln_2.bias 8',
      'h.0.mlp.c_fc.weight 8x32',
      'h.0.mlp.c_fc.bias 32',
      'h.0.mlp.c_proj.weight 32x8',
      'h.0.mlp.c_proj.bias 8',
      'ln_f.weight 8',
      'ln_f.bias 8',
      'lm_head.weight 11x8',
    ])
    disposeModule(model)
  })

  it('has the same initial bits in every layout, on every backend', async () => {
    const recipe = gpt({ ...small, layers: 3, seed: 4 })
    const whole = bits(recipe.build())
    expect([recipe.slice(0, 1), recipe.slice(1, 3)].flatMap(bits)).toEqual(whole)
    await loadBackend('cpu')
    expect(bits(recipe.build())).toEqual(whole)
    await loadBackend('wasm')
  })

  it('initially gives every token about the same probability', () => {
    const model = new GPT(small)
    expect(lossOf(model)).toBeCloseTo(Math.log(small.vocabulary), 1)
    disposeModule(model)
  })

  it('does not attend to later tokens', () => {
    const model = livelyGpt()
    const scores = (tokens: number[]) =>
      tf.tidy(() => [...model.forward(tf.tensor2d([tokens], undefined, 'int32')).dataSync()])
    const [one, other] = [scores([1, 2, 3, 4]), scores([1, 2, 3, 9])]
    const before = 3 * small.vocabulary
    expect(one.slice(0, before)).toEqual(other.slice(0, before))
    expect(one.slice(before)).not.toEqual(other.slice(before))
    disposeModule(model)
  })

  it.each([{ tied: false }, { tied: true }])(
    'has the gradients of finite differences: tied $tied',
    ({ tied }) => {
      const model = livelyGpt({ tied })
      const gradients = gradientsOf(model)
      expect(Object.keys(gradients)).toHaveLength(model.parameters.length)
      const step = 3e-3
      for (const parameter of model.parameters) {
        const { name, shape, value } = parameter
        const middle = [...value.dataSync()]
        const direction = middle.map((_, i) => Math.sin(1 + 7.3 * i))
        const lossAt = (distance: number) => {
          const there = middle.map((x, i) => x + distance * direction[i]!)
          replaceValue(parameter, tf.keep(tf.tensor(there, [...shape])))
          return lossOf(model)
        }
        const change = (distance: number) => lossAt(distance) - lossAt(-distance)
        // of fourth order: what bends does not count
        const slope = (8 * change(step) - change(2 * step)) / (12 * step)
        lossAt(0)
        const expected = gradients[name]!.reduce((sum, g, i) => sum + g * direction[i]!, 0)
        expect(Math.abs(slope - expected)).toBeLessThan(2e-4 + 1e-2 * Math.abs(expected))
      }
      disposeModule(model)
    },
  )

  it('leaks no tensor in training steps', () => {
    const model = new GPT(small)
    const optimizer = new SGD({ learningRate: 0.1 })
    const counts = Array.from({ length: 4 }, (_, step) => {
      singleProcessStep(model, tokenBatch(step, 3, 6, 11), optimizer)
      const { numTensors, numBytes } = tf.memory()
      return { numTensors, numBytes }
    })
    expect(counts[3]).toEqual(counts[1])
    disposeModule(model)
  })

  it.each([
    { schedule: '1f1b', stages: 2 },
    { schedule: 'zb-h1', stages: 3 },
    { schedule: 'interleaved', stages: 2 },
  ] as const)('trains in $stages stages as in one: $schedule', async ({ schedule, stages }) => {
    const recipe = gpt({ ...small, layers: 4 })
    const STEPS = 10
    const before = tf.memory().numTensors
    const ranks = await runWorld({ size: stages, seed: 3 }, async (world) => {
      const pipe = pipeline(recipe, world, { schedule, microbatches: 3 })
      const optimizer = new SGD({ learningRate: 0.1 })
      const seen = []
      for (let step = 0; step < STEPS; step++) {
        const { loss, gradients } = await pipe.forwardBackward(tokenBatch(step, 4, 6, 11))
        const taken = values(gradients)
        optimizer.step(pipe.parameters, gradients)
        seen.push({ loss, gradients: taken, parameters: parameterValues(pipe) })
      }
      const { loss: validation, accuracy } = await pipe.evaluate(tokenBatch(99, 4, 6, 11))
      pipe.dispose()
      return { seen, validation, accuracy }
    })
    const whole = recipe.build()
    const optimizer = new SGD({ learningRate: 0.1 })
    for (let step = 0; step < STEPS; step++) {
      const wanted = singleProcessStep(whole, tokenBatch(step, 4, 6, 11), optimizer)
      const there = ranks.map(({ seen }) => seen[step]!)
      for (const { loss } of there) expect(loss).toBeCloseTo(wanted.loss, 5)
      const all = <Key extends 'gradients' | 'parameters'>(key: Key) =>
        Object.assign({}, ...there.map((each) => each[key])) as (typeof wanted)[Key]
      expect(excess(all('gradients'), wanted.gradients)).toBeLessThanOrEqual(0)
      expect(excess(all('parameters'), wanted.parameters)).toBeLessThanOrEqual(0)
    }
    expect(new Set(ranks.map(({ validation }) => validation)).size).toBe(1)
    const { inputs, labels } = tokenBatch(99, 4, 6, 11)
    const right = tf.tidy(() => countCorrect(whole.forward(inputs()), labels()))
    for (const { accuracy } of ranks) expect(accuracy).toBeCloseTo(right / 24, 6)
    disposeModule(whole)
    expect(tf.memory().numTensors).toBe(before)
  })

  it.each([
    [{ ...small, width: 9 }, 'width'],
    [{ ...small, heads: 0 }, 'heads'],
    [{ ...small, range: [2, 2] as const }, '[2, 2)'],
  ])('refuses %j', (options, part) => {
    expect(() => new GPT(options)).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_ARGUMENT',
        message: expect.stringContaining(part) as string,
      }),
    )
  })

  it('refuses tokens that are out of range, and sequences that are too long', () => {
    const model = new GPT(small)
    const of = (tokens: number[]) => () =>
      tf.tidy(() => model.forward(tf.tensor2d([tokens], undefined, 'int32')))
    expect(of([1, 11])).toThrow('0 to 10')
    expect(of([1, 2, 3, 4, 5, 6, 7])).toThrow('at most 6')
    disposeModule(model)
  })
})
