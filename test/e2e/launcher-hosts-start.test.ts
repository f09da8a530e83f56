import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { allFinished, collecting, node, port } from '../launcher/support/nodes.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

describe('a job of several launchers', () => {
  it('numbers its ranks across launchers with different numbers of ranks', async () => {
    const runs = [2, 1, 3].map((nproc, i) =>
      node(i, 3, ['--nproc', String(nproc), 'environment.mjs']),
    )
    const ends = await allFinished(runs)
    expect(ends.map(({ code }) => code)).toEqual([0, 0, 0])
    const environments = ends
      .flatMap(({ stdout }) => Array.from(stdout.matchAll(/\{.*\}/g), ([json]) => json))
      .map((json) => (JSON.parse(json) as { environment: Record<string, string> }).environment)
      .sort((a, b) => Number(a['RANK']) - Number(b['RANK']))
    const facts = environments.map((env) =>
      [
        'RANK',
        'LOCAL_RANK',
        'LOCAL_WORLD_SIZE',
        'NODE_RANK',
        'GROUP_RANK',
        'WORLD_SIZE',
        'TSRUN_NNODES',
      ]
        .map((name) => env[name])
        .join(' '),
    )
    expect(facts).toEqual([
      '0 0 2 0 0 6 3',
      '1 1 2 0 0 6 3',
      '2 0 1 1 1 6 3',
      '3 0 3 2 2 6 3',
      '4 1 3 2 2 6 3',
      '5 2 3 2 2 6 3',
    ])
    for (const name of ['MASTER_ADDR', 'MASTER_PORT', 'TSRUN_RUN_ID']) {
      expect(new Set(environments.map((env) => env[name])).size).toBe(1)
    }
    expect(environments[0]).toMatchObject({ MASTER_ADDR: '127.0.0.1', MASTER_PORT: String(port) })
  })

  it('gives up after its own --rdzv-timeout even if node 0 would wait longer', async () => {
    const zero = node(0, 3, ['--rdzv-timeout', '600', 'hello.mjs'])
    const one = node(1, 3, ['--rdzv-timeout', '1.5', 'hello.mjs'], collecting)
    const { code, stderr } = await one.finished
    expect(code).toBe(75)
    expect(stderr).toContain('(ERR_TSR_RENDEZVOUS_TIMEOUT)')
    zero.signal('SIGINT')
    await zero.finished
  })
})

it('all launchers of a job write logs under one run ID and the global rank', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-logs-'))
  try {
    const args = ['--nproc', '2', '--log-dir', folder, 'hello.mjs']
    await allFinished([node(0, 2, args), node(1, 2, args)])
    const [run, ...more] = readdirSync(folder)
    expect(more).toEqual([])
    expect(readdirSync(join(folder, run!, 'attempt_0')).sort()).toEqual(['0', '1', '2', '3'])
  } finally {
    rmSync(folder, { recursive: true })
  }
})
