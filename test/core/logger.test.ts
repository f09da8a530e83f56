import { spawnSync, type SpawnSyncReturns } from 'node:child_process'
import { fileURLToPath } from 'node:url'

function run(env: Record<string, string>, ...args: string[]): SpawnSyncReturns<string> {
  const script = fileURLToPath(new URL('./fixtures/log-and-exit.ts', import.meta.url))
  const flags = ['--import', 'tsx']
  return spawnSync(process.execPath, [...flags, script, ...args], {
    encoding: 'utf8',
    maxBuffer: 2 ** 24,
    env: { PATH: process.env['PATH'], ...env },
    timeout: 20_000,
  })
}

describe('the logger of a process', () => {
  it.each(['blocking', 'non-blocking'])(
    'writes all lines to a %s pipe before process.exit, each with the rank',
    (pipe) => {
      const { status, stderr } = run(
        {
          RANK: '1',
          WORLD_SIZE: '2',
          MASTER_ADDR: 'node0',
          MASTER_PORT: '29500',
          TSRUN_RUN_ID: 'run-7',
        },
        pipe,
      )
      const lines = stderr
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as object)
      expect(status).toBe(3)
      expect(lines).toHaveLength(1000)
      expect(lines[999]).toMatchObject({
        level: 30,
        time: expect.any(Number),
        name: 'test',
        rank: 1,
        runId: 'run-7',
        i: 999,
        msg: 'a line',
      })
    },
    30_000,
  )

  it('names the valid levels if the level is unknown', () => {
    const { status, stderr } = run({ TSRUN_LOG_LEVEL: 'loud' })
    expect(status).toBe(1)
    expect(stderr).toContain('TSRUN_LOG_LEVEL is "loud"; expected one of "trace", "debug", "info"')
  })
})
