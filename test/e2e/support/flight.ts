import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { tsrunHere } from '../../launcher/support/in-process.ts'
import { killLeftovers, tsrun, type Finished } from '../../launcher/support/tsrun.ts'

export const cwd = fileURLToPath(new URL('../../fixtures/ranks/', import.meta.url))

/** The log folder of the jobs of the test running now. */
export let logs = ''
beforeEach(() => (logs = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  killLeftovers()
  rmSync(logs, { recursive: true, force: true })
})

export async function fail(env: NodeJS.ProcessEnv): Promise<Finished> {
  const args = ['--nproc', '4', '--grace', '0.3', '--log-dir', logs, 'never-enters.mjs']
  return await tsrun(args, { cwd, env })
}

export async function compare(): Promise<string> {
  const [run] = readdirSync(logs)
  const { code, stdout } = await tsrunHere(['flight', join(logs, run!, 'attempt_0')])
  expect(code).toBe(0)
  return stdout
}

/** Whatever the algorithm of the last operation. */
export const sentence =
  /rank 2 never entered allReduce #5 \(ddp bucket 3: layer4\.weight\) of group world; last op allReduce\(sum\) float32\[1024\] by [\w-]+ #4/
const complete = new RegExp(`${sentence.source}; waiting for it: 0-1, 3`)

/** `places` are where rank 2 stays instead of entering. */
export function describeNeverEntering(places: readonly string[]): void {
  it.each(places)(
    'a rank that never enters an operation (%s) is named, with its last operation and the waiting ranks',
    async (ELSEWHERE) => {
      const { code, stderr } = await fail({ ELSEWHERE })
      expect(code).toBe(1)
      const inReport = stderr.replaceAll(/\s+/g, ' ')
      expect(inReport).toContain(
        'first cause rank 2 of 4 never entered allReduce #5 (ddp bucket 3: layer4.weight) of group ' +
          'world, in which ranks 0-1, 3 waited 1.50 s',
      )
      expect(inReport).toMatch(
        /last Its last operation was allReduce\(sum\) float32\[1024\] by [\w-]+ #4/,
      )
      // The stack of the error above the line of the script begins with the label, too.
      expect(inReport).toMatch(/error TsrError: ddp bucket 3: layer4\.weight: Rank \d: allReduce/)
      const text = await compare()
      expect(text).toContain('records of 4 of 4 ranks')
      expect(text).toMatch(new RegExp(`${complete.source}\n`))
    },
  )
}
