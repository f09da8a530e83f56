import { loadBackend, tf } from '@tsrun/training'
import { cases, differentiate, type Case } from '../support/differentiable.ts'

const expected = new Map<Case, Float32Array[]>()

beforeAll(async () => {
  await loadBackend('cpu')
  for (const one of cases) expected.set(one, differentiate(one))
  await loadBackend('wasm')
})

describe('every op differentiates on wasm', () => {
  it('that TensorFlow.js can differentiate on cpu', () => {
    const { _tfGlobals: registries } = globalThis as unknown as {
      _tfGlobals: ReadonlyMap<string, ReadonlyMap<string, unknown>>
    }
    const tried = new Set(cases.map(({ kernel }) => kernel))
    const all = [...registries.get('gradRegistry')!.keys()]
    expect(all.length).toBeGreaterThan(90)
    // wasm has no complex numbers, and nothing leads from a real tensor to one that has a gradient
    expect(all.filter((kernel) => !tried.has(kernel))).toEqual(['ComplexAbs'])
  })

  it.each(cases.map((one) => ({ title: `${one.kernel} ${one.note ?? ''}`.trim(), one })))(
    '$title',
    ({ one }) => {
      const before = tf.memory().numTensors
      const actual = differentiate(one)
      expect(tf.memory().numTensors).toBe(before)
      const wrong = actual.flatMap((values, of) =>
        [...values].flatMap((value, at) => {
          const wanted = expected.get(one)![of]![at]!
          const isClose = Math.abs(value - wanted) <= 1e-5 + 1e-4 * Math.abs(wanted)
          return isClose ? [] : [{ of, at, value, wanted }]
        }),
      )
      expect(wrong).toEqual([])
    },
  )
})

describe('a kernel that only the cpu backend has', () => {
  it('runs there', () => {
    const a = tf.tensor2d([1, 2, 3, 4], [2, 2])
    const b = tf.tensor2d([5, 6, 7, 8], [2, 2])
    const before = tf.memory().numTensors
    const product = tf.einsum('ij,jk->ki', a, b)
    expect([...product.dataSync()]).toEqual([19, 43, 22, 50])
    product.dispose()
    expect(tf.memory().numTensors).toBe(before)
  })
})
