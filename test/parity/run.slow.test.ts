import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { jest } from '@jest/globals'
import { FakeBlas, withCompiler } from '../doctor/support/fake-blas.ts'
import { layoutsOf, main, parity } from './parity.ts'

jest.setTimeout(900_000)

// run.nightly.test.ts has those of the GPT, and the layouts of the single functions.
it('every layout of a trainer() of the MLP computes the same as a single process', async () => {
  const rows = await parity(['--through', 'trainer', '--models', 'mlp', '--steps', '2'])
  expect(rows.map(({ configuration }) => configuration)).toEqual(layoutsOf('mlp'))
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
