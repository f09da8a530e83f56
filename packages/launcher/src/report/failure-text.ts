import type { Failure } from './failure.ts'
import { formatSeconds } from './units.ts'

const WIDTH = 80

/** The report of a failed job: the cause first, what followed, where to read on. */
export function failureText(failure: Failure): string {
  const { rank, worldSize, pid, host, ended, seconds, explanation, error, stderr, others, logs } = failure
  const ranks = worldSize === 1 ? 'the only rank' : `rank ${rank} of ${worldSize}`
  const lines = [
    rule(' tsrun: the job failed '),
    `first cause  ${ranks} ${ended}, ${formatSeconds(seconds)} after its start`,
    `process      ${pid} on ${host}`,
    ...titled('meaning', explanation?.split('\n') ?? []),
    ...titled('error', error?.split('\n') ?? []),
    ...titled('stderr', stderr),
    ...titled('others', others),
    ...titled('logs', logs === undefined ? [] : [logs]),
    rule(` exit code ${failure.jobExitCode} `),
  ]
  return lines.join('\n') + '\n'
}

/** Aligns a block under its title: one line beside it, several below it. */
function titled(title: string, lines: readonly string[]): string[] {
  if (lines.length === 0) return []
  const column = title.padEnd(13)
  return lines.map((line, index) => (index === 0 ? column : ' '.repeat(13)) + line)
}

function rule(title: string): string {
  return `──${title}`.padEnd(WIDTH, '─')
}
