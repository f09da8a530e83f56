import { createServer, type AddressInfo } from 'node:net'
import { once } from 'node:events'
import { Run, type Finished, type Options, type RankLine } from './tsrun.ts'

export const token = 'c0ffee'.repeat(8)
export let port: number

beforeEach(async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  port = (server.address() as AddressInfo).port
  server.close()
})

const collector = new URL('../../fixtures/launcher/collect.mjs', import.meta.url)

/** A launcher that collects garbage all the time: what nobody holds is gone at once. */
export const collecting: Options = { env: { NODE_OPTIONS: `--import ${collector.href}` } }

/** One launcher of a job whose hosts are all this one. */
export function node(
  rank: number,
  nnodes: number,
  args: readonly string[],
  options: Options = {},
): Run {
  const endpoint = ['--rdzv-endpoint', `127.0.0.1:${port}`]
  return new Run(['--nnodes', String(nnodes), '--node-rank', String(rank), ...endpoint, ...args], {
    ...options,
    env: { TSRUN_TOKEN: token, ...options.env },
  })
}

export async function allFinished(runs: readonly Run[]): Promise<Finished[]> {
  return await Promise.all(runs.map(({ finished }) => finished))
}

/** The ranks of all launchers, once `count` of each are there. */
export async function allReady(
  runs: readonly Run[],
  counts: readonly number[],
): Promise<RankLine[]> {
  const ranks = await Promise.all(runs.map((run, i) => run.announced(counts[i]!)))
  return ranks.flat().sort((a, b) => a.rank - b.rank)
}
