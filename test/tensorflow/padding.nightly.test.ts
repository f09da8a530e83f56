import { loadBackend } from '@tsrun/training'
import {
  convolutions,
  poolings,
  rounded,
  run,
  volumes,
  type Result,
  type SmallCase,
} from '../training/backend/support/small-windows.ts'
import { tensorflow } from '../training/backend/support/tensorflow.ts'
import { WarmProcess } from '../training/backend/support/warm.ts'
import { needing } from '../needs.ts'

const url = new URL('../training/backend/support/small-windows.ts', import.meta.url).href
const process = new WarmProcess({ ...tensorflow, TSRUN_BACKEND: 'tensorflow' }, true)
afterAll(() => {
  process.end()
})

const sets = { convolutions, poolings, rounded, volumes }

/** JSON has no infinite numbers. */
const isClose = (a: readonly string[], b: Float32Array): boolean =>
  a.length === b.length &&
  a.every((text, i) => {
    const value = Number(text)
    return Object.is(value, b[i]) || Math.abs(value - b[i]!) <= 1e-4
  })

const { describe: describeIt } = needing(
  tensorflow !== undefined,
  'TensorFlow (npx tsrun setup tensorflow)',
)

describeIt('tensorflow', () => {
  it.each(['convolutions', 'poolings', 'rounded', 'volumes'] as const)(
    'computes %s at borders like cpu',
    async (name) => {
      await loadBackend('cpu')
      const all = [...sets[name]()]
      const expected = all.map(run)
      const actual = (await process.run(`
      await training.loadBackend()
      const { ${name}, run } = await load('${url}')
      return [...${name}()].map((one) => {
        const { shape, values, gradients } = run(one)
        const texts = (list) => [...list].map(String)
        return { shape, values: texts(values), gradients: gradients.map(texts) }
      })
    `)) as { shape: number[]; values: string[]; gradients: string[][] }[]
      const differs = (one: SmallCase): boolean => {
        const [mine, wanted]: [(typeof actual)[0], Result] = [
          actual[all.indexOf(one)]!,
          expected[all.indexOf(one)]!,
        ]
        return (
          String(mine.shape) !== String(wanted.shape) ||
          !isClose(mine.values, wanted.values) ||
          mine.gradients.some((gradient, k) => !isClose(gradient, wanted.gradients[k]!))
        )
      }
      const wrong = all.filter(differs)
      expect(wrong.map(({ title }) => title)).toEqual([])
    },
  )
})
