import { loadBackend, tf } from '@tsrun/training'
import { runModule } from '../support/process.ts'
import { cases, differentiate, type Case } from '../support/differentiable.ts'

const expected = new Map<Case, Float32Array[]>()

beforeAll(async () => {
  await loadBackend('cpu')
  for (const one of cases) expected.set(one, differentiate(one))
  await loadBackend('wasm')
})

describe('the wasm backend', () => {
  it('is tested with every op that has a gradient on cpu', () => {
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
    'computes the gradients of cpu for $title',
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

it('einsum on wasm sums over axes of one operand, which cpu does not support', async () => {
  await loadBackend('wasm')
  const a = tf.tensor2d([1, 2, 3, 4, 5, 6], [2, 3])
  const b = tf.tensor2d([1, 0, -1, 2, 3, 1], [3, 2])
  const before = tf.memory().numTensors
  const sums = tf.einsum('ij,jk->k', a, b)
  // [5, 7, 9] b
  expect([...sums.dataSync()]).toEqual([25, 23])
  sums.dispose()
  expect(tf.memory().numTensors).toBe(before)
})

it('a kernel that wasm lacks runs on the cpu backend, with one warning', async () => {
  const { code, stdout, stderr } = await runModule(`
    const { loadBackend, record, tf } = training
    await loadBackend('wasm')
    const x = tf.tensor4d([3, 1, 9, 2], [1, 2, 2, 1])
    const w = tf.zeros([2, 2, 1])
    for (let i = 0; i < 2; i++) {
      const pass = record((h) => tf.dilation2d(h, w, 2, 'same'), x, [], { needsInputGradient: true })
      console.log([...pass.backward(pass.value, () => undefined).dataSync()].join(' '))
    }
  `)
  expect({ code, stdout }).toEqual({ code: 0, stdout: '0 0 9 0\n'.repeat(2) })
  expect(stderr.match(/has no usable kernel Dilation2D: /g)).toHaveLength(1)
})
