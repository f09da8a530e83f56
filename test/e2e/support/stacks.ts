import { tsrun, type Run } from '../../launcher/support/tsrun.ts'

/** The blocks of `tsrun stacks` for this run, by rank. */
export async function stacksOfRun(run: Run): Promise<string[]> {
  const { stdout } = await tsrun(['ps'])
  const [, runId] = new RegExp(`^(\\S+) .*\\(tsrun ${run.pid},`, 'm').exec(stdout)!
  return (await tsrun(['stacks', runId!])).stdout.split(/^rank \d+ /m).slice(1)
}
