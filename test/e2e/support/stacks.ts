import { Run, tsrun, until } from '../../launcher/support/tsrun.ts'
import { needing } from '../../needs.ts'

const { it: itOnLinux } = needing(process.platform === 'linux', 'Linux')

/** The blocks of `tsrun stacks` for this run, by rank. */
function stacksOf(text: string): string[] {
  return text.split(/^rank \d+ /m).slice(1)
}

export async function stacksOfRun(run: Run): Promise<string[]> {
  const { stdout } = await tsrun(['ps'])
  const [, runId] = new RegExp(`^(\\S+) .*\\(tsrun ${run.pid},`, 'm').exec(stdout)!
  return stacksOf((await tsrun(['stacks', runId!])).stdout)
}

export function describeStacks(): void {
  itOnLinux('tsrun stacks shows where ranks are stuck, or do not answer', async () => {
    const run = new Run(['--nproc', '4', '--grace', '0', 'stuck.mjs'])
    await run.announced(4)
    await until(() => run.stdout.includes('rank 3 calls'), 'rank 3 is in native code')
    const [spins, waits, idles, blocks] = await stacksOfRun(run)
    expect(spins).toMatch(
      /^\(pid \d+\)\n    at spin \(.*stuck\.mjs:5:\d+\)\n    at .*stuck\.mjs:13/,
    )
    expect(waits).toMatch(/at Atomics\.wait .*\n    at waitForever \(.*stuck\.mjs:9/)
    expect(idles).toContain('no JavaScript runs: it awaits something in its event loop')
    expect(blocks).toContain('no answer within 1 s: its main thread is blocked in native code')
    run.signal('SIGTERM')
    await run.finished
  })
}
