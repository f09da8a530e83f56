import { fileURLToPath } from 'node:url'
import { tsrunHere } from '../launcher/support/in-process.ts'
import { killLeftovers, Run } from '../launcher/support/tsrun.ts'
import { describeInChromium } from './support/browser.ts'
import { needing } from '../needs.ts'

afterEach(killLeftovers)
const cwd = fileURLToPath(new URL('../fixtures/ranks/', import.meta.url))
const onLinux = process.platform === 'linux'
const { describe: describeOnLinux } = needing(onLinux, 'Linux')

async function startAsleep(env: NodeJS.ProcessEnv = {}): Promise<Run> {
  const args = ['--nproc', '2', '--grace', '30', '--dashboard', '0', 'asleep.mjs']
  const run = new Run(args, { cwd, env })
  await run.announced(2)
  return run
}

/** The states that `tsrun top` or `ps` shows, by rank. */
async function statesOf(run: Run, command: readonly string[]): Promise<string[]> {
  const { stdout } = await tsrunHere([...command, await runIdOf(run)])
  const [, titles = '', ...rows] = stdout.trimEnd().split('\n')
  const column = titles.trim().split(/ {2,}/).indexOf('state')
  return rows.map((row) => row.trim().split(/ {2,}/)[column]!)
}

async function runIdOf(run: Run): Promise<string> {
  const { stdout } = await tsrunHere(['ps'])
  return new RegExp(`^(\\S+) .*\\(tsrun ${run.pid},`, 'm').exec(stdout)![1]!
}

/** Repeats until this holds; a rank may be seen in its collective. */
async function untilSeen<T>(look: () => Promise<T>, holds: (seen: T) => boolean): Promise<T> {
  for (const deadline = performance.now() + 60_000; ;) {
    const seen = await look()
    if (holds(seen)) return seen
    if (performance.now() > deadline) throw new Error(`still ${JSON.stringify(seen)}`)
  }
}

const top = ['top', '--once', '--interval', '1']

async function stop(run: Run): Promise<void> {
  for (const { pid } of await run.announced(2)) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It has died before.
    }
  }
  await run.finished
}

describeOnLinux('tsrun top, ps and stacks', () => {
  it('call sleeping ranks idle and never computing, and mark the rank that died', async () => {
    const run = await startAsleep()
    const seen: string[] = []
    const look = async (): Promise<string[]> => {
      const states = await statesOf(run, top)
      seen.push(...states)
      return states
    }
    // On a busy host, a rank that has slept waits for a core: not all are idle at once.
    const idle = new Set<number>()
    await untilSeen(look, (states) => {
      for (const [index, state] of states.entries()) if (state === 'idle') idle.add(index)
      return states.length === 2 && idle.size === 2
    })
    expect(seen.join()).not.toContain('computing')
    await untilSeen(
      async () => await statesOf(run, ['ps']),
      (states) => states.every((one) => one === 'running'),
    )
    process.kill((await run.announced(2)).find(({ rank }) => rank === 1)!.pid, 'SIGKILL')
    for (const command of [top, ['ps']]) {
      await untilSeen(
        async () => await statesOf(run, command),
        ([other, dead]) => dead === 'died' && other !== 'died',
      )
    }
    const { stdout } = await tsrunHere(['stacks', await runIdOf(run)])
    expect(stdout).toMatch(/^rank 1 \(pid \d+\): died, (in|after) allReduce.* of world$/m)
    expect(stdout).toMatch(/^rank 0 .*\n {4}no JavaScript runs/m)
    await stop(run)
  })

  // On a busy host, it is running: it waits for a core.
  it('distinguish a computing rank from a sleeping one', async () => {
    const run = await startAsleep({ BUSY: '1' })
    await untilSeen(
      async () => await statesOf(run, top),
      ([, one]) => one === 'computing' || one === 'running',
    )
    await untilSeen(
      async () => (await tsrunHere(['stacks', await runIdOf(run)])).stdout,
      (text) => /^rank 1 .*: running for .*, after allReduce/m.test(text),
    )
    await stop(run)
  })
})

describeInChromium('the dashboard', (newPage) => {
  it('calls sleeping ranks idle, and marks a dead rank', async () => {
    const run = await startAsleep()
    const { page, complaints } = await newPage()
    await page.goto(/^tsrun: dashboard: (http:\S+)$/m.exec(run.stderr)![1]!)
    const picture = page.getByRole('img', { name: /^What 2 ranks did: / })
    const shares = await untilSeen(
      async () => {
        const label = (await picture.getAttribute('aria-label')) ?? ''
        const parts = [...label.matchAll(/(\w+) (\d+) %/g)]
        return new Map(parts.map(([, word, part]) => [word, Number(part)]))
      },
      (parts) => (parts.get('idle') ?? 0) >= 50,
    )
    expect(shares.get('computing')).toBeLessThan(25)
    process.kill((await run.announced(2)).find(({ rank }) => rank === 1)!.pid, 'SIGKILL')
    const state = (row: number) => page.locator('tbody tr').nth(row).locator('td').first()
    await untilSeen(
      async () => await state(1).textContent(),
      (text) => text === 'died',
    )
    expect(await state(0).textContent()).not.toBe('died')
    expect(complaints).toEqual([])
    await stop(run)
  })
})
