import { fileURLToPath } from 'node:url'
import { Run } from '../../launcher/support/tsrun.ts'
import { parseExposition } from '../../observe/support/exposition.ts'

export const cwd = fileURLToPath(new URL('../../fixtures/ranks/', import.meta.url))

export function urlOf({ stderr }: Pick<Run, 'stderr'>): string {
  return /^tsrun: metrics: (http:\S+)$/m.exec(stderr)![1]!
}

/** The values of a metric by the label `rank`; that of the job under `job`. */
type Values = (name: string) => Record<string, number>

export async function scrape(url: string): Promise<Values> {
  const answer = await fetch(url)
  expect(answer.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
  const families = parseExposition(await answer.text())
  return (name) =>
    Object.fromEntries(
      (families.get(name)?.samples ?? []).map(
        ({ labels, value }) => [labels['rank'] ?? 'job', value] as const,
      ),
    )
}

/** Scrapes until this holds. */
export async function untilScraped(
  url: string,
  holds: (values: Values) => boolean,
): Promise<Values> {
  const deadline = performance.now() + 20_000
  for (;;) {
    const values = await scrape(url)
    if (holds(values)) return values
    if (performance.now() > deadline) throw new Error('still not scraped')
  }
}

export function describeCounting(): void {
  describe('tsrun --metrics', () => {
    it('counts the operations of ranks while they run', async () => {
      const args = ['--nproc', '4', '--grace', '0.3', '--metrics', '0', 'progress.mjs']
      const run = new Run(args, { cwd })
      await run.announced(4)
      const url = urlOf(run)
      expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/metrics$/)
      const ranks = ['0', '1', '2', '3']
      // The files of the ranks are read at different moments.
      const first = await untilScraped(url, (values) =>
        ranks.every((rank) => values('tsrun_rank_step')[rank]! > 5),
      )
      const names = [
        'tsrun_rank_steps_total',
        'tsrun_rank_operations_total',
        'tsrun_rank_operation_seconds_total',
        'tsrun_rank_operation_bytes_total',
        'tsrun_rank_cpu_seconds_total',
      ]
      // All of them rise.
      await untilScraped(url, (values) =>
        names.every((name) => ranks.every((rank) => values(name)[rank]! > first(name)[rank]!)),
      )
      expect(first('tsrun_rank_up')).toEqual({ 0: 1, 1: 1, 2: 1, 3: 1 })
      expect(first('tsrun_job_ranks')).toEqual({ job: 4 })
      for (const rank of ranks) {
        expect(first('tsrun_rank_resident_memory_bytes')[rank]).toBeGreaterThan(2 ** 20)
        expect(first('tsrun_rank_loss')[rank]).toBeGreaterThan(0)
        expect(first('tsrun_rank_wait_seconds_total')[rank]).toBeLessThanOrEqual(
          first('tsrun_rank_operation_seconds_total')[rank]!,
        )
      }
      run.signal('SIGTERM')
      expect(await run.finished).toMatchObject({ code: 143 })
      await expect(fetch(url)).rejects.toThrow()
    })
  })
}
