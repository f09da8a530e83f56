import { jest } from '@jest/globals'
import { blocks, compilePrograms, limit } from './programs.ts'

jest.setTimeout(limit + 10_000)

/** The only excuses. */
const reasons = [
  'installs packages',
  'installs packages; scripts/check-packages.mjs runs it',
  'test/examples/steps.slow.test.ts runs it',
  'needs mpirun; test/interop/mpi runs it',
  'needs several machines',
  'needs Docker',
  'needs several machines; test/hosts/ssh.test.ts runs it',
  'needs several machines; test/hosts/doctor.test.ts runs it',
  'needs mpirun or srun; test/interop/mpi and test/hosts/slurm.test.ts run it',
  'needs mpirun; test/hosts/slurm.test.ts runs it',
  'needs Slurm; test/hosts/slurm.test.ts runs it',
  'needs no tsrun; npm run check:packages runs it',
  'needs Ray; test/interop/ray runs it',
  'needs TensorFlow; test/docs/tfjs-node.test.ts runs it',
  'the job would outlive the test; test/e2e/logs.test.ts runs it',
  'runs these tests',
  'publishes packages',
  'needs a web page; test/browser runs it',
  'test/live runs it',
  'needs Node 26; test/e2e/permissions.test.ts runs it',
  'needs Bun and Deno; test/e2e/runtimes.slow.test.ts runs it',
]
/** Beside those that another test runs. */
const MOST_EXCUSES = 8

// snippets.slow.test.ts runs them
describe('README.md, docs and the packages', () => {
  it('give a known reason for each code block that is not executed', () => {
    const given = blocks.flatMap(({ notExecuted }) => notExecuted ?? [])
    expect(reasons).toEqual(expect.arrayContaining(given))
    expect(given.filter((reason) => !/ runs? it$/.test(reason)).length).toBeLessThanOrEqual(
      MOST_EXCUSES,
    )
    const languages = new Set(blocks.map(({ language }) => language))
    expect(['sh', 'ts', 'text', 'json', 'yaml', 'html']).toEqual(
      expect.arrayContaining([...languages]),
    )
  })

  it('show programs that type-check against the published types', async () => {
    const { code, output } = await compilePrograms()
    expect({ code, output }).toEqual({ code: 0, output: '' })
  })
})
