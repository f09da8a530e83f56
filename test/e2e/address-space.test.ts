import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { cleanEnvironment, fixtures, killLeftovers, tsrun } from '../launcher/support/tsrun.ts'
import { needing } from '../needs.ts'
import { isAvailable } from '@tsrun/native'

afterEach(killLeftovers)

const { it: itNative } = needing(isAvailable().available, 'bindings')

itNative('ranks share arenas that fit into a limited address space', async () => {
  const job = await tsrun(['--nproc', '4', 'sums.mjs'], { ulimit: '-v 6000000' })
  expect(job.stdout.match(/sums 10$/gm)).toHaveLength(4)
  expect(job.stderr).not.toContain('WARN')
})

itNative('a rank without tsrun has room with the flag that docs/deploy/mpi.md names', async () => {
  const start = async (NODE_OPTIONS: string): Promise<string> => {
    const command = ['-c', 'ulimit -v 6000000; "$0" sums.mjs 2>&1; true', process.execPath]
    const env = { ...cleanEnvironment(), NODE_OPTIONS }
    return (await promisify(execFile)('bash', command, { cwd: fixtures, env })).stdout
  }
  expect(await start('')).toContain('ERR_TSR_ARENA_UNAVAILABLE')
  expect(await start('--disable-wasm-trap-handler')).toContain('sums 1')
})

itNative('ranks agree on TCP if the limit has no room for the arenas of other ranks', async () => {
  const env = { TSRUN_ARENA: '4095MiB', LENGTH: '100000' }
  const job = await tsrun(['--nproc', '3', 'sums.mjs'], { env, ulimit: '-v 9000000' })
  expect(job.stdout.match(/sums 6$/gm)).toHaveLength(3)
  expect(job.stderr).toMatch(/no shared memory.*cannot open the memory of ranks? .*ulimit -v/)
})

itNative('a rank warns of an arena that is smaller than requested', async () => {
  const env = { TSRUN_ARENA: '4095MiB' }
  const job = await tsrun(['sums.mjs'], { env, ulimit: '-v 4500000' })
  expect(job.stdout).toContain('sums 1')
  expect(job.stderr).toContain('the address space is short, so the arena is smaller')
})

itNative('arrays of almost 4 GB fit into the default arena', async () => {
  const env = { ALLOCATED: '980000000', LENGTH: '100000' }
  const job = await tsrun(['--nproc', '2', 'sums.mjs'], { env })
  expect(job.stdout.match(/sums 3$/gm)).toHaveLength(2)
})
