import { fileURLToPath } from 'node:url'
import { tsrunHere } from '../../launcher/support/in-process.ts'
import { Run } from '../../launcher/support/tsrun.ts'

const cwd = fileURLToPath(new URL('../../fixtures/ranks/', import.meta.url))

/** Asks `tsrun ps` until it says this. */
export async function untilShown(holds: (text: string) => boolean): Promise<string> {
  for (;;) {
    const { stdout } = await tsrunHere(['ps'])
    if (holds(stdout)) return stdout
  }
}

/** The title, the titles of the columns and four ranks of the job whose title holds this. */
export function rowsOf(text: string, job: string): string[] {
  const lines = text.split('\n')
  const start = lines.findIndex((line) => line.includes(job))
  return start < 0 ? [] : lines.slice(start, start + 6)
}

export async function startStuck(env: NodeJS.ProcessEnv = {}): Promise<Run> {
  const run = new Run(['--nproc', '4', '--grace', '0.3', 'never-enters.mjs'], {
    cwd,
    env: { ELSEWHERE: 'loop', TIMEOUT: '600000', ...env },
  })
  await run.announced(4)
  return run
}

/** How ranks write what `tsrun ps` reads. */
export const writers = [
  { name: 'worker engine', env: {} },
  { name: 'inline engine', env: { TSRUN_ENGINE: 'inline' } },
]

export function describePs(cases: typeof writers): void {
  describe.each(cases)('tsrun ps ($name)', ({ env }) => {
    it('shows the operations of all ranks, including a stuck rank and the ranks that wait for it', async () => {
      const run = await startStuck(env)
      const text = await untilShown((shown) => {
        const rows = rowsOf(shown, `(tsrun ${run.pid},`).slice(2)
        // Rank 0 receives from rank 1 before it waits for rank 2.
        return (
          / 2 +7 +0\.5000$/.test(rows[0] ?? '') &&
          rows.filter((row) => / waiting .+ #5 of world +4 KiB +\d/.test(row)).length === 3
        )
      })
      const top = await tsrunHere(['top', '--once', '--interval', '0.2'])
      expect(top).toMatchObject({ code: 0 })
      const watched = rowsOf(top.stdout, `(tsrun ${run.pid},`)
      expect(watched[1]).toMatch(/^rank +state .* CPU .* operation$/)
      expect(watched[2]).toMatch(/^0 +waiting .* \d+ % .* allReduce/)
      const [title, titles, ...rows] = rowsOf(text, `(tsrun ${run.pid},`)
      expect(title).toContain(`(tsrun ${run.pid}, 4 of 4 ranks here)`)
      expect(titles).toMatch(/^rank +pid +state/)
      expect(rows[2]).toMatch(
        /^2 +\d+ +(running|waiting|communicating) +.+allReduce\(sum\) float32\[1024\] .+#\d of world/,
      )
      const [runId] = title!.split(' ')
      expect((await tsrunHere(['ps', runId!])).stdout).toContain(title)
      const json = await tsrunHere(['ps', runId!, '--json'])
      const [job] = JSON.parse(json.stdout) as { ranks: unknown[] }[]
      expect(job).toMatchObject({ runId, launcherPid: run.pid, worldSize: 4 })
      expect(job).not.toHaveProperty('socket')
      const waiting = { rank: 0, state: 'waiting', waitsFor: [2], step: 7, loss: 0.5 }
      expect(job!.ranks[0]).toMatchObject(waiting)
      run.signal('SIGTERM')
      await run.finished
    })
  })
}
