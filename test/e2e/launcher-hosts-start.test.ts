import { copyFileSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { allFinished, collecting, node, port, token } from '../launcher/support/nodes.ts'
import { fixtures, killLeftovers, Run, until } from '../launcher/support/tsrun.ts'

jest.setTimeout(60_000)
afterEach(killLeftovers)

describe('a job of several launchers', () => {
  it('numbers its ranks through, however many each has', async () => {
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

  it('says whom it waits for, on every host that has come', async () => {
    const [zero, two] = [node(0, 3, ['hello.mjs']), node(2, 3, ['hello.mjs'])]
    await until(() => zero.stderr.includes('waiting for node 1 '), 'node 0 says so')
    await until(() => / waiting for node 1; \d+ s\n/.test(two.stderr), 'node 2 says so')
    const one = node(1, 3, ['hello.mjs'])
    expect((await allFinished([zero, one, two])).map(({ code }) => code)).toEqual([0, 0, 0])
  })

  it('gives up after --rdzv-timeout, naming who is missing', async () => {
    const limit = ['--rdzv-timeout', '1.5', 'hello.mjs']
    const ends = await allFinished([node(0, 3, limit), node(1, 3, limit)])
    expect(ends.map(({ code }) => code)).toEqual([2, 2])
    expect(ends[0]!.stderr).toContain('node 2')
    for (const { stderr } of ends) expect(stderr).toContain('(ERR_TSR_RENDEZVOUS_TIMEOUT)')
  })

  it('gives up after its own --rdzv-timeout where node 0 would wait longer', async () => {
    const zero = node(0, 3, ['--rdzv-timeout', '600', 'hello.mjs'])
    const one = node(1, 3, ['--rdzv-timeout', '1.5', 'hello.mjs'], collecting)
    const { code, stderr } = await one.finished
    expect(code).toBe(2)
    expect(stderr).toContain('(ERR_TSR_RENDEZVOUS_TIMEOUT)')
    zero.signal('SIGINT')
    await zero.finished
  })

  it('says that nobody answers, and why that may be', async () => {
    const { code, stderr } = await node(1, 2, ['--rdzv-timeout', '1', 'hello.mjs']).finished
    expect(code).toBe(2)
    expect(stderr).toContain('did not come together within 1 s: node 0 at 127.0.0.1')
    expect(stderr).toContain('ECONNREFUSED')
    expect(stderr).toContain('127.0.0.1 is a loopback address: only its own host reaches it')
  })

  it('takes the place of a node that left while the others were awaited', async () => {
    const zero = node(0, 3, ['hello.mjs'])
    const leaving = node(1, 3, ['hello.mjs'])
    await until(() => zero.stderr.includes('waiting for node 2 '), 'node 1 has come')
    leaving.signal('SIGINT')
    expect((await leaving.finished).code).toBe(130)
    const rest = [node(1, 3, ['hello.mjs']), node(2, 3, ['hello.mjs'])]
    expect((await allFinished([zero, ...rest])).map(({ code }) => code)).toEqual([0, 0, 0])
  })
})

describe('nodes that do not fit are refused, on all hosts', () => {
  it.each<[string, string[], string[], string]>([
    ['other numbers of nodes', ['--nnodes', '3'], [], 'was started with --nnodes 3, and node 0'],
    ['the same node rank', ['--node-rank', '0'], [], 'another process has taken the port'],
  ])('%s', async (_, mine, theirs, problem) => {
    const zero = node(0, 2, ['--rdzv-timeout', '20', ...theirs, 'hello.mjs'])
    await until(() => zero.stderr.includes('waiting'), 'node 0 waits')
    const other = node(1, 2, [...mine, 'hello.mjs'])
    const { code, stderr } = await other.finished
    expect(code).toBe(2)
    expect(stderr).toContain(problem)
    if (mine.includes('--node-rank')) zero.signal('SIGINT')
    else expect((await zero.finished).stderr).toContain(problem)
    await zero.finished
  })

  it('two nodes 1', async () => {
    const runs = [0, 1, 1].map((rank) => node(rank, 3, ['hello.mjs']))
    for (const { code, stderr } of await allFinished(runs)) {
      expect(code).toBe(2)
      expect(stderr).toContain('are both node 1. Start the same command')
    }
  })

  it('another script', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-script-'))
    try {
      copyFileSync(join(fixtures, 'hello.mjs'), join(folder, 'hello.mjs'))
      const same = [node(0, 2, ['hello.mjs']), node(1, 2, ['hello.mjs'], { cwd: folder })]
      expect((await allFinished(same)).map(({ code }) => code)).toEqual([0, 0])
      writeFileSync(join(folder, 'hello.mjs'), 'console.log("old")')
      const other = [node(0, 2, ['hello.mjs']), node(1, 2, ['hello.mjs'], { cwd: folder })]
      for (const { code, stderr } of await allFinished(other)) {
        expect(code).toBe(2)
        expect(stderr).toContain('has a different script')
      }
    } finally {
      rmSync(folder, { recursive: true })
    }
  })

  it('another token; the job goes on without it', async () => {
    const zero = node(0, 2, ['hello.mjs'])
    const stranger = node(1, 2, ['hello.mjs'], { env: { TSRUN_TOKEN: 'ab'.repeat(16) } })
    const { code, stderr } = await stranger.finished
    expect(code).toBe(2)
    expect(stderr).toContain('have different tokens')
    await until(
      () => zero.stderr.includes('refused a connection from 127.0.0.1:'),
      'node 0 says so',
    )
    expect((await allFinished([zero, node(1, 2, ['hello.mjs'])])).map((end) => end.code)).toEqual([
      0, 0,
    ])
  })

  it('no token', async () => {
    const { code, stderr } = await node(0, 2, ['hello.mjs'], { env: { TSRUN_TOKEN: '' } }).finished
    expect(code).toBe(2)
    expect(stderr).toContain('needs a secret that all of them share')
    expect(stderr).toContain('openssl rand -hex 32')
  })
})

it('keeps logs under one run id and the number of the rank in the job', async () => {
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

it('--dry-run shows what comes from where, and the ranks of this host', async () => {
  const slurm = { SLURM_NODEID: '1', SLURM_NNODES: '2', SLURM_NTASKS: '2', SLURM_STEP_ID: '0' }
  const env = { ...slurm, SLURM_JOB_NODELIST: 'n[1-2]', TSRUN_TOKEN: token }
  const run = new Run(['--nproc', '2', '--dry-run', 'hello.mjs'], { env })
  const { code, stdout, stderr } = await run.finished
  expect(code).toBe(0)
  expect(stderr).toBe(
    'tsrun: from the environment: nnodes=2 (SLURM_NNODES), node-rank=1 (SLURM_NODEID), ' +
      'master-addr=n1 (SLURM_JOB_NODELIST)\n',
  )
  for (const line of [
    'rank 2\n',
    'MASTER_ADDR=n1',
    'MASTER_PORT=29500',
    'WORLD_SIZE=4',
    'NODE_RANK=1',
  ]) {
    expect(stdout).toContain(line)
  }
  expect(stdout).not.toContain(token)
})
