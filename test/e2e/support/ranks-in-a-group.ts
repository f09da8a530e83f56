import { fileURLToPath } from 'node:url'
import { Run, tsrun, untilGone, type Finished, type Options } from '../../launcher/support/tsrun.ts'

const cwd = fileURLToPath(new URL('../../fixtures/ranks/', import.meta.url))

export async function jobOf(
  ranks: number,
  program: string,
  options: Options = {},
): Promise<Finished> {
  return await tsrun(['--nproc', String(ranks), program], { cwd, ...options })
}

export function reportOf({ stderr }: Finished): string {
  const start = stderr.indexOf('── tsrun: the job failed')
  expect(start).toBeGreaterThanOrEqual(0)
  return stderr.slice(start)
}

/** Where the engine of a rank runs, and what it sends through. */
export const engines = [
  { name: 'engine in a worker', env: {} },
  { name: 'engine inline', env: { TSRUN_ENGINE: 'inline' } },
  { name: 'node sockets', env: { TSRUN_TRANSPORT: 'node' } },
]

export function describeKilled(cases: typeof engines): void {
  describe.each(cases)('a rank that is killed in the middle of all-reduces ($name)', ({ env }) => {
    it('is the root cause, not its peers, and no process is left', async () => {
      const run = new Run(['--nproc', '4', 'all-reduces.mjs'], { cwd, env })
      const ranks = await run.announced(4)
      const victim = ranks.find(({ rank }) => rank === 2)!
      process.kill(victim.pid, 'SIGKILL')
      const finished = await run.finished
      const report = reportOf(finished)
      expect(finished.code).toBe(137)
      expect(report).toContain('first cause  rank 2 of 4 was killed by SIGKILL')
      expect(report).toContain(`process      ${victim.pid} on `)
      expect(report.match(/first cause/g)).toHaveLength(1)
      await untilGone(ranks.map(({ pid }) => pid))
    })
  })
}

/** `ways` are how the ranks call. */
export function describeFailedCalls(ways: readonly string[]): void {
  it.each(ways)('the report shows the line of the failed call: %s', async (way) => {
    const report = reportOf(await tsrun(['--nproc', '3', 'mismatch.mjs', way], { cwd }))
    expect(report).toContain('ERR_TSR_MISMATCH')
    const [first, second] = report.match(/at (?:async )?.*:\d+:\d+/g) ?? []
    expect(first).toMatch(/at (async )?call \(.*mismatch\.mjs:\d+:\d+/)
    expect(second).toMatch(/at (async )?file:.*mismatch\.mjs:24:\d+/)
  })
}
