import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { jest } from '@jest/globals'
import { configurations } from '../../scripts/parity/configurations.mjs'
import { tensorflow } from '../training/backend/support/tensorflow.ts'

jest.setTimeout(900_000)
const main = fileURLToPath(new URL('../../scripts/parity/main.mjs', import.meta.url))

interface Row {
  readonly configuration: string
  readonly model: string
  readonly ranks: number
  readonly verdict: string
  readonly gradients: number
  readonly collectives: number
  readonly messages: number
  readonly miscounts: readonly string[]
  readonly covered: boolean
}

async function parity(...args: string[]): Promise<Row[]> {
  const env = { ...process.env, ...tensorflow }
  const { stdout } = await promisify(execFile)(process.execPath, [main, '--json', ...args], { env })
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Row)
}

it('every layout of every model computes the same as a single process', async () => {
  // `npm run parity` takes 20: a difference shows in the first, or after the first update
  const rows = await parity('--steps', '2')
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
  const rows = await parity('--through', 'trainer', '--steps', '2')
  expect(rows.length).toBeGreaterThan(configurations.length)
  expect(rows.filter(({ verdict }) => verdict !== 'equal')).toEqual([])
  expect(rows.filter(({ covered }) => !covered)).toEqual([])
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
