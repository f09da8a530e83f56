import { createServer, type AddressInfo } from 'node:net'
import { once } from 'node:events'
import { RunHere, type HereOptions } from './in-process.ts'
import { Run, type Options, type RankLine } from './tsrun.ts'

export const token = 'c0ffee'.repeat(8)
export let port: number

beforeEach(async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  port = (server.address() as AddressInfo).port
  server.close()
})

const collector = new URL('../../fixtures/launcher/collect.mjs', import.meta.url)

/** A launcher that collects garbage all the time, so that objects without references are gone at once. */
export const collecting: Options = { env: { NODE_OPTIONS: `--import ${collector.href}` } }

/** One launcher of a job whose hosts are all this one. */
export function node(
  rank: number,
  nnodes: number,
  args: readonly string[],
  options: Options = {},
): Run {
  return new Run(argumentsOf(rank, nnodes, args), {
    ...options,
    env: { TSRUN_TOKEN: token, ...options.env },
  })
}

/** The same in this process. */
export function nodeHere(
  rank: number,
  nnodes: number,
  args: readonly string[],
  options: HereOptions = {},
): RunHere {
  return new RunHere(argumentsOf(rank, nnodes, args), {
    ...options,
    env: { TSRUN_TOKEN: token, ...options.env },
  })
}

function argumentsOf(rank: number, nnodes: number, args: readonly string[]): string[] {
  const endpoint = ['--rdzv-endpoint', `127.0.0.1:${port}`]
  return ['--nnodes', String(nnodes), '--node-rank', String(rank), ...endpoint, ...args]
}

/** How all of these launchers end, in their order. */
export async function allFinished<Run extends { readonly finished: Promise<unknown> }>(
  runs: readonly Run[],
): Promise<Awaited<Run['finished']>[]> {
  return (await Promise.all(runs.map(({ finished }) => finished))) as Awaited<Run['finished']>[]
}

/** The ranks of all launchers, once `count` of each are there. */
export async function allReady(
  runs: readonly Run[],
  counts: readonly number[],
): Promise<RankLine[]> {
  const ranks = await Promise.all(runs.map((run, i) => run.announced(counts[i]!)))
  return ranks.flat().sort((a, b) => a.rank - b.rank)
}
