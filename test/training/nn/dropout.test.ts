import {
  Dropout,
  inPass,
  Linear,
  loadBackend,
  record,
  recordModule,
  Sequential,
  tf,
  wholeModel,
} from '@tsrun/training'
import { recordChain } from '../../internals/training.ts'

const options = { needsInputGradient: true }
const ones = (rows: number) => tf.ones([rows, 500])
const layer = new Dropout({ name: 'drop', rate: 0.25 })

it('Dropout drops different values in each forwardBackward of a model', async () => {
  await loadBackend('wasm')
  const model = wholeModel(
    new Sequential({ drop: layer, linear: new Linear({ name: 'l', inputs: 500, outputs: 3 }) }),
  )
  const batch = { size: 2, inputs: () => ones(2), labels: () => tf.tensor1d([0, 1], 'int32') }
  const losses = new Set<number>()
  for (let step = 0; step < 3; step++) {
    const { loss, gradients } = await model.forwardBackward(batch)
    losses.add(loss)
    tf.dispose([...gradients.values()])
  }
  expect(losses.size).toBe(3)
  model.dispose()
})

describe.each(['wasm', 'cpu'] as const)('Dropout on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  const drop = (step: number, rows: number, row = 0, module = layer) =>
    inPass({ training: true, step, row }, () => [
      ...module.forward(ones(rows)).dataSync<'float32'>(),
    ])

  it('drops values at its rate, and scales the others', () => {
    const values = drop(0, 40)
    expect(new Set(values)).toEqual(new Set([0, Math.fround(4 / 3)]))
    const share = values.filter((value) => value === 0).length / values.length
    // five standard deviations
    expect(Math.abs(share - 0.25)).toBeLessThan(5 * Math.sqrt((0.25 * 0.75) / values.length))
  })

  it('drops different values in each step, row and module, and repeats them on demand', () => {
    expect(drop(3, 4)).toEqual(drop(3, 4))
    expect(drop(3, 4)).not.toEqual(drop(4, 4))
    expect(drop(3, 1, 0)).not.toEqual(drop(3, 1, 1))
    expect(drop(3, 4)).not.toEqual(drop(3, 4, 0, new Dropout({ name: 'other', rate: 0.25 })))
    expect(drop(3, 4)).not.toEqual(
      drop(3, 4, 0, new Dropout({ name: 'drop', rate: 0.25, seed: 1 })),
    )
  })

  it('drops the same values in parts of a batch as in the whole batch', () => {
    expect([...drop(3, 2), ...drop(3, 3, 2)]).toEqual(drop(3, 5))
  })

  it('changes nothing outside training', () => {
    const x = ones(2)
    expect(layer.forward(x)).toBe(x)
    expect(inPass({ training: false, step: 1 }, () => layer.forward(x))).toBe(x)
  })

  it('has a gradient of zero where it dropped a value', () => {
    const x = ones(2)
    const pass = inPass({ training: true, step: 5 }, () => recordModule(layer, x, options))
    const dx = pass.backward(ones(2), () => undefined)!
    expect(dx.dataSync()).toEqual(pass.value.dataSync())
    expect(dx.dataSync()).toContain(0)
  })

  it('drops the same values when the pass is recomputed', async () => {
    const x = ones(2)
    const chain = await inPass({ training: true, step: 5, row: 8 }, () =>
      recordChain([layer], x, { ...options, recompute: [true] }),
    )
    const dx = (await chain.backward(ones(2), () => undefined))!
    expect(dx.dataSync()).toEqual(chain.value.dataSync())
    expect([...dx.dataSync()]).toEqual(drop(5, 2, 8))
  })

  it('refuses to be recorded in a pass whose step is unknown', () => {
    expect(() => record((x) => layer.forward(x), ones(2), [], options)).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_ARGUMENT',
        message: expect.stringContaining('inPass({ training: true, step }') as string,
      }),
    )
  })

  it('refuses a rate of 1', () => {
    expect(() => new Dropout({ name: 'all', rate: 1 })).toThrow(/rate is 1; expected at least 0/)
  })
})
