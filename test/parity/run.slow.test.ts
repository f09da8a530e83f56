import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { jest } from '@jest/globals'
import { configurations } from '../../scripts/parity/configurations.mjs'
import { FakeBlas, withCompiler } from '../doctor/support/fake-blas.ts'
import { tensorflow } from '../training/backend/support/tensorflow.ts'

jest.setTimeout(900_000)
const main = fileURLToPath(new URL('../../scripts/parity/main.mjs', import.meta.url))

interface Row {
  readonly configuration: string
  readonly model: string
  readonly math: string
  readonly blas: string | null
  readonly ranks: number
  readonly verdict: string
  readonly gradients: number
  readonly collectives: number
  readonly messages: number
  readonly miscounts: readonly string[]
  readonly covered: boolean
  readonly bits: boolean | null
}

async function parity(args: readonly string[], TSRUN_BLAS = 'off'): Promise<Row[]> {
  const env = { ...process.env, ...tensorflow, TSRUN_BLAS }
  const { stdout } = await promisify(execFile)(process.execPath, [main, '--json', ...args], { env })
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Row)
}

it('every layout of every model computes the same as a single process', async () => {
  // `npm run parity` takes 20: a difference shows in the first, or after the first update
  const rows = await parity(['--steps', '2'])
  const wanted = ['mlp', 'gpt'].flatMap((model) =>
    configurations
      .filter(({ models }) => models?.some((name) => name === model) ?? true)
      .map(({ name }) => `${model} ${name}`),
  )
  expect(rows.map(({ model, configuration }) => `${model} ${configuration}`)).toEqual(wanted)
  expect(rows.filter(({ verdict }) => verdict !== 'equal')).toEqual([])
  // a verdict is made of these as well
  expect(rows.filter(({ miscounts, covered }) => miscounts.length > 0 || !covered)).toEqual([])
  const silent = rows.filter(({ messages }) => messages === 0)
  expect(silent.map(({ configuration }) => configuration).join()).not.toMatch(/pp|cp/)
  // sums in another order leave traces: a comparison of a model with itself would not
  expect(rows.filter(({ gradients }) => gradients > 0).length).toBeGreaterThan(rows.length / 2)
  expect(rows.filter(({ ranks, collectives }) => ranks > 1 && collectives === 0)).toEqual([])
})

it('every layout of trainer() computes the same as a single process', async () => {
  const rows = await parity(['--through', 'trainer', '--steps', '2'])
  expect(rows.length).toBeGreaterThan(configurations.length)
  expect(rows.filter(({ verdict }) => verdict !== 'equal')).toEqual([])
  expect(rows.filter(({ covered }) => !covered)).toEqual([])
})

withCompiler.describe('with a BLAS', () => {
  const blas = new FakeBlas()

  it.each(['verbs', 'trainer'])(
    'layouts are compared with both kinds of math by %s',
    async (by) => {
      const small = ['--models', 'mlp', '--steps', '2', '--through', by]
      const rows = await parity(['--only', 'dp4,zero1 x4', ...small], blas.path)
      const fast = { math: 'fast', blas: `${blas.path} (Played)`, verdict: 'equal', bits: null }
      const exact = { math: 'exact', blas: null, verdict: 'equal' }
      expect(rows).toMatchObject([
        { configuration: 'dp4', ...exact, bits: null },
        { configuration: 'zero1 x4', ...exact, bits: true },
        { configuration: 'dp4', ...fast },
        { configuration: 'zero1 x4', ...fast },
      ])
    },
  )
})

it('without a BLAS, parity says that it did not run fast math', async () => {
  await expect(parity(['--only', 'single', '--math', 'fast'])).rejects.toMatchObject({
    code: 1,
    stderr: 'parity: fast was not run, because no BLAS passed the self-test of wasm\n',
  })
})

it('an unknown layout is refused with the list of layouts', async () => {
  const refused = promisify(execFile)(process.execPath, [main, '--only', 'zero9'])
  await expect(refused).rejects.toMatchObject({
    code: 2,
    stderr: expect.stringMatching(
      /^parity: --only: no layout is called "zero9"; there are single, /,
    ),
  })
})
