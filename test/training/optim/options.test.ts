import { Adam, AdamW, SGD, type Optimizer, type Parameter } from '@tsrun/training'

it.each<[() => Optimizer, RegExp]>([
  [() => new SGD({ learningRate: -1 }), /learningRate is -1; expected a number >= 0/],
  [() => new SGD({ learningRate: Number.NaN }), /learningRate is NaN/],
  [
    () => new SGD({ learningRate: 1, momentum: 1 }),
    /momentum is 1; expected a number >= 0 and < 1/,
  ],
  [() => new SGD({ learningRate: 1, nesterov: true }), /momentum is 0/],
  [() => new SGD({ learningRate: 1, weightDecay: -1 }), /weightDecay is -1/],
  [() => new Adam({ weightDecay: Number.NaN }), /weightDecay is NaN/],
  [() => new Adam({ betas: [0.9, 1.5] }), /betas\[1\] is 1.5/],
  [() => new Adam({ epsilon: -1 }), /epsilon is -1/],
  [() => new AdamW({ weightDecay: -0.1 }), /weightDecay is -0.1/],
])('optimizers refuse invalid options', (make, message) => {
  expect(make).toThrow(expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }))
  expect(make).toThrow(message)
})

/** Without types, as in a program of JavaScript. */
const made = (kind: unknown, ...options: unknown[]) =>
  new (kind as new (...options: unknown[]) => Optimizer)(...options)

it.each([SGD, Adam, AdamW])('%p refuses unknown options', (kind) => {
  for (const [options, message] of [
    [{ lr: 0.1 }, /options is an object with the unknown key "lr"; expected only learningRate, /],
    [{ learningRate: 0.1, weight_decay: 0.1 }, /the unknown key "weight_decay"/],
    [{ learningRate: 0.1, eps: 1e-6 }, /the unknown key "eps"/],
    [{ learningRate: '0.1' }, /learningRate is "0.1"; expected a number/],
    [{ learningRate: 0.1, weightDecay: '0' }, /weightDecay is "0"/],
    [{ learningRate: 0.1, withoutDecay: 3 }, /withoutDecay is 3; expected names or patterns/],
    [{ learningRate: 0.1, withoutDecay: ['a', 3] }, /withoutDecay is an array of 2/],
    [null, /options is null/],
  ] as const) {
    const make = () => made(kind, options)
    expect(make).toThrow(expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }))
    expect(make).toThrow(message)
  }
})

it.each([new SGD({ learningRate: 1 }), new Adam(), new AdamW()])(
  'an optimizer refuses a step after its learning rate was set to NaN: %p',
  (optimizer) => {
    optimizer.learningRate = NaN
    expect(() => {
      optimizer.step([], new Map())
    }).toThrow(/learningRate is NaN; expected a number >= 0/)
  },
)

it('optimizers refuse the options of another kind of optimizer', () => {
  expect(() => made(Adam, { nesterov: true })).toThrow(/the unknown key "nesterov"/)
  expect(() => made(SGD, { learningRate: 1, betas: [0.9, 0.9] })).toThrow(/the unknown key "betas"/)
  expect(() => made(SGD, { learningRate: 1, momentum: 0.9, nesterov: 'no' })).toThrow(
    /nesterov is "no"; expected true or false/,
  )
  expect(() => made(SGD)).toThrow(/options is undefined; expected an object with learningRate/)
})

it('optimizers refuse parameters in place of the options', () => {
  const parameters: readonly Partial<Parameter>[] = [{ name: 'a' }, { name: 'b' }]
  expect(() => made(Adam, parameters, { learningRate: 0.1 })).toThrow(/options is an array of 2/)
})
