import { launchers, runRanks } from './mpirun.ts'
import { needing } from '../../needs.ts'

const found = launchers()
const { describe: describeWithMpi } = needing(found.length > 0, 'mpirun')
// An empty list would leave no tests to skip.
const tried = found.length > 0 ? found : [{ name: 'mpirun', command: '', flags: [], env: {} }]

for (const launcher of tried) {
  // Hydra does not name its jobs, so theirs would all have one port.
  const env = launcher.name === 'MPICH' ? { MASTER_PORT: `${20_000 + (process.pid % 10_000)}` } : {}

  describeWithMpi(`ranks of ${launcher.name}, without tsrun and without the transport mpi`, () => {
    it('find each other and compute a sum', async () => {
      const { code, output, said } = await runRanks(launcher, 3, ['launched.mjs'], env)
      expect({ code, output }).toEqual({ code: 0, output })
      const met = said('met').sort((a, b) => Number(a['rank']) - Number(b['rank']))
      const all = { size: 3, sum: 3, WORLD_SIZE: '3', LOCAL_WORLD_SIZE: '3' }
      expect(met).toMatchObject(
        [0, 1, 2].map((rank) => {
          const own = { rank, RANK: String(rank), LOCAL_RANK: String(rank) }
          return { ...all, ...own, MASTER_ADDR: '127.0.0.1' }
        }),
      )
    })

    it('end with their scripts, even if these do not call destroyProcessGroup()', async () => {
      const { code, output } = await runRanks(launcher, 3, ['store-in-rank-0.mjs', 'return'], env)
      expect({ code, output }).toEqual({ code: 0, output })
    })

    it('all end when one of them fails', async () => {
      const { code, output } = await runRanks(launcher, 3, ['launched.mjs', '1'], env)
      expect({ code, output }).not.toEqual({ code: 0, output })
      expect(output).toContain('Error: bad luck')
    })
  })
}
