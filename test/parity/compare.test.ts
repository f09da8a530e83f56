import {
  addStep,
  assemble,
  covers,
  isClose,
  isSame,
  noErrors,
} from '../../scripts/parity/compare.mjs'
import { differences } from '../../scripts/parity/traffic.mjs'

const wanted = {
  loss: 2,
  norm: 1,
  gradients: new Map([['w', Float32Array.from([0, 1, 2, 3, 4, 5])]]),
  parameters: new Map([['w', Float32Array.from([0, 1, 2, 3, 4, 5])]]),
}
const box = { offset: [0, 1], extent: [2, 2] }
const piece = (values: number[], part = {}) => ({
  name: 'w',
  shape: [2, 3],
  values: Float32Array.from(values),
  ...part,
})

function errorsOf(change: object) {
  const errors = noErrors()
  const whole = [piece([0, 1, 2, 3, 4, 5])]
  addStep(errors, { loss: 2, norm: 1, gradients: whole, parameters: whole, ...change }, wanted)
  return errors
}

describe('the comparison of a step', () => {
  it('finds no error in equal tensors: whole, a box, or a range of a box', () => {
    for (const part of [
      piece([0, 1, 2, 3, 4, 5]),
      piece([1, 2, 4, 5], { box }),
      piece([2, 4], { box, range: [1, 3] }),
    ]) {
      expect(errorsOf({ gradients: [part] })).toEqual(noErrors())
    }
  })

  it.each<[keyof ReturnType<typeof noErrors>, object]>([
    ['loss', { loss: 2 + 3e-5 }],
    ['norm', { norm: NaN }],
    ['gradients', { gradients: [piece([1, 2, 4, 5.001], { box })] }],
    ['gradients', { gradients: [piece([1, 2, 3])] }],
    ['parameters', { parameters: [piece([0, 1, 2, NaN, 4, 5])] }],
    ['parameters', { parameters: [{ ...piece([1]), name: 'other' }] }],
    ['gradients', { gradients: [{ ...piece([]), values: undefined }] }],
  ])('finds a wrong value in %s', (which, change) => {
    const errors = errorsOf(change)
    expect(errors[which]).toBeGreaterThan(1)
    expect({ ...errors, [which]: 0 }).toEqual(noErrors())
    expect(isClose(JSON.parse(JSON.stringify(errors)) as typeof errors)).toBe(false)
  })

  it('reports small differences as multiples of the tolerance', () => {
    const errors = errorsOf({ loss: 2 + 1.05e-5 })
    expect(errors.loss).toBeCloseTo(0.5, 3)
    expect(isClose(errors)).toBe(true)
  })
})

describe('parameters of all ranks', () => {
  const parts = [
    piece([1, 2, 4, 5], { box }),
    piece([0, 3], { box: { offset: [0, 0], extent: [2, 1] } }),
  ]

  it('are assembled to whole tensors', () => {
    expect(isSame(assemble(parts), wanted.parameters)).toBe(true)
  })

  it('differ if a bit or a name differs, or if a value is missing', () => {
    expect(isSame(assemble(parts.slice(1)), wanted.parameters)).toBe(false)
    expect(
      isSame(new Map([['w', Float32Array.of(-0)]]), new Map([['w', Float32Array.of(0)]])),
    ).toBe(false)
    expect(isSame(new Map(), wanted.parameters)).toBe(false)
  })
})

describe('a comparison', () => {
  const left = piece([0, 3], { box: { offset: [0, 0], extent: [2, 1] } })
  const right = piece([1, 2, 4, 5], { box })

  it('finds a value or a tensor that no rank has', () => {
    expect(covers([left, right], wanted.gradients)).toBe(true)
    expect(covers([right, right], wanted.gradients)).toBe(false)
    expect(covers([left, { ...right, range: [0, 3] }], wanted.gradients)).toBe(false)
    expect(covers([], wanted.gradients)).toBe(false)
    expect(covers([left, right], new Map([...wanted.gradients, ['b', new Float32Array(1)]]))).toBe(
      false,
    )
  })

  it('checks every count that has a formula', () => {
    const found = { pp: { collectives: 3, messages: 4 }, tp: { collectives: 7 } }
    expect(differences(found, { pp: { collectives: 3 }, tp: {} })).toEqual([])
    expect(differences(found, { pp: { collectives: 3, messages: 8 }, cp: { sent: 1 } })).toEqual([
      'pp messages: 4, not 8',
      'cp sent: undefined, not 1',
    ])
  })
})
