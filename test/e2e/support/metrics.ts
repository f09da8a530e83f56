import { fileURLToPath } from 'node:url'
import type { Run } from '../../launcher/support/tsrun.ts'
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
