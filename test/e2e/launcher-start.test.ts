import { spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { bin, cleanEnvironment, fixtures, killLeftovers, tsrun } from '../launcher/support/tsrun.ts'
import { needing } from '../needs.ts'

afterEach(killLeftovers)

interface Seen {
  environment: Record<string, string | undefined>
  arguments: string[]
}

/** What each rank printed, in order of rank. */
function seen(stdout: string): Seen[] {
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line.replace(/^\[rank \d+\] /, '')) as Seen)
    .sort((a, b) => Number(a.environment['RANK']) - Number(b.environment['RANK']))
}

describe('a rank', () => {
  it('gets the rank environment and unchanged arguments', async () => {
    const script = ['environment.mjs', '--nproc', '9', '-n', '09', '--lr=0.10', '--', 'a b']
    const { code, stdout } = await tsrun(['--nproc_per_node=2', ...script])
    expect(code).toBe(0)
    const ranks = seen(stdout)
    const token = ranks[0]!.environment['TSRUN_TOKEN']
    expect(token).toMatch(/^[0-9a-f]{64}$/)
    const port = ranks[0]!.environment['MASTER_PORT']
    expect(Number(port)).toBeGreaterThan(0)
    ranks.forEach(({ environment }, rank) => {
      expect(environment).toEqual({
        RANK: String(rank),
        LOCAL_RANK: String(rank),
        WORLD_SIZE: '2',
        LOCAL_WORLD_SIZE: '2',
        NODE_RANK: '0',
        GROUP_RANK: '0',
        MASTER_ADDR: '127.0.0.1',
        MASTER_PORT: port,
        TSRUN_NNODES: '1',
        TSRUN_RUN_ID: expect.stringMatching(/^\d{8}-\d{6}-[0-9a-f]{6}$/),
        TSRUN_TOKEN: token,
        TSRUN_RESTART_COUNT: '0',
      })
    })
    expect(ranks[1]!.arguments).toEqual(script.slice(1))
  })

  it('gets a different run ID and token in each job', async () => {
    const [one, other] = await Promise.all([tsrun(['environment.mjs']), tsrun(['environment.mjs'])])
    const [a, b] = [seen(one.stdout)[0]!.environment, seen(other.stdout)[0]!.environment]
    for (const name of ['TSRUN_TOKEN', 'TSRUN_RUN_ID', 'MASTER_PORT'])
      expect(a[name]).not.toBe(b[name])
  })

  it('does not pass the token to programs that it starts after joining', async () => {
    const { code, stdout } = await tsrun(['--nproc', '2', 'environment-of-child.mjs'])
    expect(code).toBe(0)
    expect(stdout.replaceAll(/\[rank \d\] /g, '')).toBe(
      '64 digits, and in a program that it starts: none\n'.repeat(2),
    )
  })

  it('gets the token of TSRUN_TOKEN if that is set', async () => {
    const token = 'ab'.repeat(32)
    const { stdout } = await tsrun(['environment.mjs'], { env: { TSRUN_TOKEN: token } })
    expect(seen(stdout)[0]!.environment['TSRUN_TOKEN']).toBe(token)
  })
})

describe('the number of ranks', () => {
  it('is one without a flag', async () => {
    expect((await tsrun(['hello.mjs'])).stdout).toBe('hello from rank 0 of 1\n')
  })

  it('is one per core with auto', async () => {
    const { stdout } = await tsrun(['--nproc', 'auto', 'hello.mjs'])
    expect(stdout).toContain(`of ${availableParallelism()}\n`)
  })

  it('comes from the flag, else TSRUN_*, else PET_*, and a line names the run and settings of the environment', async () => {
    const env = { TSRUN_NPROC: '2', PET_NPROC_PER_NODE: '3', PET_MAX_RESTARTS: '1' }
    const both = await tsrun(['hello.mjs'], { env })
    expect(both.stdout).toContain('of 2\n')
    const origins = 'from the environment: nproc=2 (TSRUN_NPROC), max-restarts=1 (PET_MAX_RESTARTS)'
    expect(both.stderr.replace(/^tsrun: run \d{8}-\d{6}-\w{6}: |\n[^]*/g, '')).toBe(origins)
    const flag = await tsrun(['--nproc', '1', 'hello.mjs'], { env: { TSRUN_NPROC: '2' } })
    expect(flag).toMatchObject({ stdout: 'hello from rank 0 of 1\n', stderr: '' })
  })
})

describe('the script', () => {
  it('may be TypeScript', async () => {
    const { code, stdout } = await tsrun(['--nproc', '2', 'typed.ts'])
    expect(code).toBe(0)
    expect(stdout.split('\n').sort()).toEqual([
      '',
      '[rank 0] typed hello from rank 0',
      '[rank 1] typed hello from rank 1',
    ])
  })

  it('may be CommonJS', async () => {
    expect((await tsrun(['common.cjs'])).stdout).toBe('common hello from rank 0\n')
  })

  it('may start worker threads and child processes, which are not ranks', async () => {
    const { code, stdout, stderr } = await tsrun(['forks.mjs'])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toBe('hello from rank 0 of 1\nhello from rank 0 of 1\ndone\n')
  })

  // Otherwise a package that is reached through two links is loaded twice, each time with state of its own.
  it('loads a linked package from its real path', async () => {
    const { stdout } = await tsrun(['linked.mjs'])
    expect(stdout).toMatch(/\/packages\/distributed\/(src|dist)\/index\.(ts|js)\n$/)
    expect(stdout).not.toContain('node_modules')
  })

  it('is found from the directory in which tsrun is called', async () => {
    const { code } = await tsrun(['./launcher/hello.mjs'], { cwd: `${fixtures}/..` })
    expect(code).toBe(0)
  })
})

describe('--max-restarts', () => {
  it('restarts all ranks together until they succeed', async () => {
    const { code, stdout, stderr } = await tsrun([
      '--nproc',
      '2',
      '--max-restarts',
      '3',
      'flaky.mjs',
      '1',
    ])
    expect(code).toBe(0)
    expect(stdout).toMatch(/rank 1 in attempt 1/)
    expect(stdout).not.toMatch(/in attempt 2/)
    expect(stderr).toMatch(
      /^tsrun: the attempt failed: rank 0 of 2 on \S+ called process\.exit\(4\); see tsrun logs \S+\ntsrun: starting/,
    )
    expect(stderr).not.toContain('first cause')
    expect(stderr).toContain('tsrun: starting all ranks again (restart 1 of 3)\n')
  })

  it('gives up after the last restart, with the exit code of the last failure', async () => {
    const { code, stdout } = await tsrun(['--nproc', '2', '--max-restarts', '2', 'flaky.mjs', '9'])
    expect(code).toBe(4)
    expect(stdout).toContain('rank 0 in attempt 2')
    expect(stdout).not.toContain('in attempt 3')
  })

  it('uses the port of --master-port in every attempt', async () => {
    // An address of this process alone, so that no other process has its port: several versions of Node may
    // run this test at the same time.
    const address = `127.83.${(process.pid >> 8) & 255}.${process.pid & 255}`
    const store = ['--master-addr', address, '--master-port', '29533']
    const run = await tsrun([...store, '--max-restarts', '2', 'flaky.mjs', '2'])
    expect(run).toMatchObject({ code: 0 })
    const { stdout } = run
    expect(stdout.match(/ at port 29533$/gm)).toHaveLength(3)
  })
})

const canUnshare = spawnSync('unshare', ['-n', 'true']).status === 0

const spawning = `import { spawn } from '@tsrun/launcher'
await spawn(() => 0, { timeout: 500 })`

needing(canUnshare, 'network namespace').it.each([
  ['tsrun', 0, [bin, 'hello.mjs']],
  ['tsrun with the name localhost', 0, [bin, '--rdzv-endpoint', 'localhost:0', 'hello.mjs']],
  ['spawn', 1, ['--input-type=module', '--eval', spawning]],
] as const)('a loopback interface that is down is named by %s', (_, code, command) => {
  const args = ['-n', process.execPath, ...command]
  const options = { cwd: fixtures, env: cleanEnvironment(), encoding: 'utf8' } as const
  const { status, stderr } = spawnSync('unshare', args, options)
  expect(status).toBe(code)
  expect(stderr).toContain('the loopback interface is down')
})
