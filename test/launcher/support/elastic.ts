import { allFinished, port, token } from './nodes.ts'
import { Run, until } from './tsrun.ts'

/** The arguments of a host of a job that hosts join and leave. */
export const elastic = (nnodes: string, ...more: string[]): string[] => [
  ...['--nnodes', nnodes, '--rdzv-backend', 'c10d', '--rdzv-endpoint', `127.0.0.1:${port}`],
  ...['--grace', '1', '--no-summary', ...more],
]
export const lastCall = (seconds: number): string[] => [
  '--rdzv-conf',
  `last_call_timeout=${seconds}`,
]
export const env = { TSRUN_TOKEN: token }

/** A signal to the launcher of one host, its index, and the exit code of all. */
export type Stop = readonly [how: string, signal: NodeJS.Signals, index: number, code: number]

export const stopsHost0: Stop = ['SIGTERM to node 0', 'SIGTERM', 0, 75]
export const stopsOtherHost: Stop = ['Ctrl-C on another host', 'SIGINT', 1, 130]

export function describeStops(stops: readonly Stop[]): void {
  it.each(stops)('--nnodes MIN:MAX stops all hosts at %s', async (_, signal, index, expected) => {
    const args = elastic('2:3', ...lastCall(0.3), 'elastic.mjs', '9')
    const zero = new Run(args, { env })
    await until(() => zero.stderr.includes('waiting for more nodes'), 'node 0 waits')
    const other = new Run(args, { env })
    await Promise.all([zero, other].map((run) => run.announced(1, 'attempt 0 of 2')))
    const runs = [zero, other]
    runs[index]!.signal(signal)
    expect((await allFinished(runs)).map(({ code }) => code)).toEqual([expected, expected])
  })
}
