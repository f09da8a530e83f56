import { launchers, runRanks } from './mpirun.ts'
import { needing } from '../../needs.ts'

const found = launchers()
const { describe: describeWithMpi } = needing(found.length > 0, 'mpirun')
// An empty list would leave no tests to skip.
const tried = found.length > 0 ? found : [{ name: 'mpirun', command: '', flags: [], env: {} }]

/** What ranks promise over each MPI of this machine. */
export function describeOverMpi(engine: 'worker' | 'inline'): void {
  for (const launcher of tried) {
    describeWithMpi(`over libmpi: ${launcher.name}, engine ${engine}`, () => {
      const env = { TSRUN_TRANSPORT: 'mpi', TSRUN_ENGINE: engine }

      it('runs every operation', async () => {
        // two programs, one after the other
        const { code, said, output } = await runRanks(launcher, 3, ['all-operations.mjs'], env)
        expect({ code, done: said('done').length, output }).toMatchObject({ code: 0, done: 6 })
      })

      it('makes the communicators of many groups in conflicting orders', async () => {
        const { code, said } = await runRanks(launcher, 3, ['mpi.mjs', 'groups'], env)
        expect({ code, ended: said('end').length }).toEqual({ code: 0, ended: 3 })
      })

      it('waits seconds for a rank, while the others collect garbage', async () => {
        const { code, said } = await runRanks(launcher, 3, ['mpi.mjs', 'late'], env)
        expect({ code, ended: said('end').length }).toEqual({ code: 0, ended: 3 })
      })

      it('joins again after it was destroyed', async () => {
        const { code, said } = await runRanks(launcher, 2, ['mpi.mjs', 'again'], env)
        expect({ code, sums: said('end').map(({ sum }) => sum) }).toEqual({ code: 0, sums: [1, 1] })
      })

      it('ends the job when a rank throws, and shows why', async () => {
        const { code, output } = await runRanks(launcher, 3, ['mpi.mjs', 'throw'], env)
        expect(code).not.toBe(0)
        expect(output).toContain('bad luck')
      })

      it('reports a mismatch if ranks run different operations', async () => {
        const { said } = await runRanks(launcher, 3, ['mpi.mjs', 'mismatch'], env)
        const codes = said('end').map(({ code }) => code)
        expect(codes).toContain('ERR_TSR_MISMATCH')
        expect(codes).not.toContain('none')
      })

      it('times out on the other ranks if one rank does not enter a collective', async () => {
        const { said } = await runRanks(launcher, 3, ['mpi.mjs', 'missing'], env)
        expect(said('end').map((line) => line['code'])).toContain('ERR_TSR_OPERATION_TIMEOUT')
      })
    })
  }
}
