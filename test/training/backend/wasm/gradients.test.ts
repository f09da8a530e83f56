import { loadBackend } from '@tsrun/training'
import { cases, differentiate } from '../support/differentiable.ts'

const expected = new Map<unknown, Float32Array[]>()
beforeAll(async () => {
  await loadBackend('cpu')
  for (const one of cases) {
  try { expected.set(one, differentiate(one)) } catch (e) { console.log('cpu', one.kernel, one.note, (e as Error).message) }
  }
  await loadBackend('wasm')
})

describe('every op differentiates on wasm', () => {
  it.each(cases)('$kernel $note', (one) => {
    const actual = differentiate(one)
    const wrong = actual.flatMap((values, of) =>
      [...values].flatMap((value, at) => {
        const wanted = expected.get(one)![of]![at]!
        const close = Math.abs(value - wanted) <= 1e-5 + 1e-4 * Math.abs(wanted)
        return close ? [] : [{ of, at, value, wanted }]
      }),
    )
    expect(wrong).toEqual([])
  })
})
