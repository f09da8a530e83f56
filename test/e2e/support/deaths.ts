import { Run, until, untilGone } from '../../launcher/support/tsrun.ts'

/** The figure of the project: how long the job may outlive the rank that died, in ms. */
const LIMIT = 2000

export interface Death {
  how: string
  env?: NodeJS.ProcessEnv
  code: number
  cause: string
  report: (string | RegExp)[]
}

/** One of each kind: an error, an exit code, a signal, and a full heap. */
export const usualDeaths: readonly Death[] = [
  {
    how: 'throw',
    code: 1,
    cause: 'died of an uncaught error (exit code 1)',
    report: [
      'TypeError: the loss is not a number',
      /die\.mjs:\d+:\d+/,
      'stderr       a last word on stderr',
    ],
  },
  {
    how: 'exit',
    code: 3,
    cause: 'called process.exit(3)',
    report: [/process\.exit\(3\) called\n +at .*die\.mjs:\d+:\d+/],
  },
  { how: 'code', code: 5, cause: 'exited with code 5', report: ['a last word on stderr'] },
  {
    how: 'kill',
    code: 137,
    cause: 'was killed by SIGKILL',
    report: ['Another process sent SIGKILL', 'a last word on stderr'],
  },
  {
    how: 'heap',
    env: { NODE_OPTIONS: '--max-old-space-size=40' },
    code: 134,
    cause: 'ran out of JavaScript heap (SIGABRT)',
    report: ['--max-old-space-size', 'a last word on stderr'],
  },
]

export const otherDeaths: readonly Death[] = [
  {
    how: 'reject',
    code: 1,
    cause: 'died of an uncaught error (exit code 1)',
    report: ['Error: nobody caught this', '[cause]: Error: the root of it'],
  },
  {
    how: 'value',
    code: 1,
    cause: 'died of an uncaught error (exit code 1)',
    report: ["'just text'"],
  },
  { how: 'segfault', code: 139, cause: 'was killed by SIGSEGV', report: ['Segmentation fault'] },
  { how: 'crash', code: 139, cause: 'was killed by SIGSEGV', report: ['Segmentation fault'] },
]

export function describeDeaths(deaths: readonly Death[]): void {
  it.each(deaths)('a rank that dies by $how is named, and the job ends at once', async (death) => {
    const run = new Run(['--nproc', '4', 'die.mjs', death.how, '1', 'asked'], {
      env: death.env ?? {},
    })
    const ranks = await run.announced(4)
    run.ask(ranks, (rank) => rank === 1)
    const [dying] = await run.announced(1, 'asked')
    // An exhausted heap takes its time to be noticed: V8 says when.
    const isLong = death.how === 'heap'
    if (isLong) await until(() => run.stderr.includes('FATAL ERROR'), 'V8 gives up')
    const diedAt = isLong ? performance.now() : 0
    const { code, stdout, stderr, at } = await run.finished
    expect(code).toBe(death.code)
    if (isLong) expect(performance.now() - diedAt).toBeLessThan(LIMIT)
    else expect(at - dying!.at).toBeLessThan(LIMIT)
    await untilGone(
      ranks.map(({ pid }) => pid),
      LIMIT,
    )

    const report = stderr.slice(stderr.indexOf('── tsrun: the job failed'))
    expect(report).toContain(`first cause  rank 1 of 4 ${death.cause}`)
    expect(report).toContain(`process      ${dying!.pid} on `)
    expect(report).toMatch(/others +ranks 0, 2-3: stopped by tsrun, after /)
    for (const part of death.report) expect(report).toMatch(part)
    expect(report).toMatch(new RegExp(`── exit code ${death.code} ─+\n$`))
    expect(stdout).not.toContain('first cause')
  })
}
