import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tsrunHere } from '../support/in-process.ts'
import { allFinished, nodeHere, token } from '../support/nodes.ts'
import { fixtures, until } from '../support/tsrun.ts'

describe('the nodes of a job', () => {
  it('say on every host for which nodes they wait', async () => {
    const [zero, two] = [nodeHere(0, 3, ['hello.mjs']), nodeHere(2, 3, ['hello.mjs'])]
    await until(() => zero.stderr.includes('waiting for node 1 '), 'node 0 says so')
    await until(() => / waiting for node 1; \d+ s\n/.test(two.stderr), 'node 2 says so')
    const one = nodeHere(1, 3, ['hello.mjs'])
    const ends = await allFinished([zero, one, two])
    expect(ends.map(({ code }) => code)).toEqual([0, 0, 0])
    // Only node 0 lists all of them.
    const lists = ends.map(({ stderr }) => /^tsrun: run \S+ on (3 nodes.*)$/m.exec(stderr)?.[1])
    expect(lists[0]).toMatch(/^3 nodes: node 0 .*: rank 0; node 1 .*: rank 1; node 2 .*: rank 2$/)
    expect(lists[1]).toMatch(/^3 nodes; this one is: node 1 \S+ \(\S+\): rank 1$/)
    expect(lists[2]).toMatch(/^3 nodes; this one is: node 2 \S+ \(\S+\): rank 2$/)
  })

  it('give up after --rdzv-timeout and name the missing node', async () => {
    const limit = ['--rdzv-timeout', '1.5', 'hello.mjs']
    const ends = await allFinished([nodeHere(0, 3, limit), nodeHere(1, 3, limit)])
    expect(ends.map(({ code }) => code)).toEqual([75, 75])
    expect(ends[0]!.stderr).toContain('node 2')
    for (const { stderr } of ends) expect(stderr).toContain('(ERR_TSR_RENDEZVOUS_TIMEOUT)')
  })

  it('wait for a name that does not exist yet, also if there is only one node', async () => {
    const args = ['--rdzv-timeout', '2.5', '--rdzv-endpoint', 'pod-0.job.invalid:29711']
    const { code, stderr } = await tsrunHere([...args, '--nnodes', '1', 'hello.mjs'])
    expect(code).toBe(75)
    expect(stderr).toMatch(/^tsrun: waiting for the name of node 0.*; 2 s$/m)
    expect(stderr).toContain('(ERR_TSR_RENDEZVOUS_TIMEOUT)')
  })

  it('say that node 0 does not answer, and give possible reasons', async () => {
    const { code, stderr } = await nodeHere(1, 2, ['--rdzv-timeout', '1', 'hello.mjs']).finished
    expect(code).toBe(75)
    expect(stderr).toContain('did not come together within 1 s: node 0 at 127.0.0.1')
    expect(stderr).toContain('ECONNREFUSED')
    expect(stderr).toContain('127.0.0.1 is a loopback address: only its own host reaches it')
  })

  it('may replace a node that left before all had joined', async () => {
    const zero = nodeHere(0, 3, ['hello.mjs'])
    const leaving = nodeHere(1, 3, ['hello.mjs'])
    await until(() => zero.stderr.includes('waiting for node 2 '), 'node 1 has come')
    leaving.interrupt()
    expect((await leaving.finished).code).toBe(130)
    const rest = [nodeHere(1, 3, ['hello.mjs']), nodeHere(2, 3, ['hello.mjs'])]
    expect((await allFinished([zero, ...rest])).map(({ code }) => code)).toEqual([0, 0, 0])
  })
})

describe('the store of a job that starts again', () => {
  const args = ['--max-restarts', '3', '--grace', '1', '--no-summary', 'attempts.mjs']

  it('deletes the keys of earlier attempts', async () => {
    const { code, stdout } = await tsrunHere(['--nproc', '2', ...args])
    expect(code).toBe(0)
    expect(stdout).toContain('attempts 3\n')
  })

  it('keeps the keys that a slow node may still read', async () => {
    const ends = await allFinished([0, 1].map((rank) => nodeHere(rank, 2, args)))
    expect(ends.map(({ code }) => code)).toEqual([0, 0])
    expect(ends[0]!.stdout).toContain('attempts 2,3\n')
  })
})

describe('a job of several hosts refuses', () => {
  it.each<[string, string[], string[], string]>([
    ['a different --nnodes', ['--nnodes', '3'], [], 'was started with --nnodes 3, and node 0'],
    ['a second node 0', ['--node-rank', '0'], [], 'EADDRINUSE: address already in use'],
  ])('%s', async (_, mine, theirs, problem) => {
    const zero = nodeHere(0, 2, ['--rdzv-timeout', '20', ...theirs, 'hello.mjs'])
    await until(() => zero.stderr.includes('waiting'), 'node 0 waits')
    const other = nodeHere(1, 2, [...mine, 'hello.mjs'])
    const { code, stderr } = await other.finished
    expect(code).toBe(2)
    expect(stderr).toContain(problem)
    if (mine.includes('--node-rank')) zero.interrupt()
    else expect((await zero.finished).stderr).toContain(problem)
    await zero.finished
  })

  it('two nodes with the rank 1', async () => {
    const runs = [0, 1, 1].map((rank) => nodeHere(rank, 3, ['hello.mjs']))
    for (const { code, stderr } of await allFinished(runs)) {
      expect(code).toBe(2)
      expect(stderr).toContain('are both node 1. Start the same command')
    }
  })

  it('a node with another script', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-script-'))
    try {
      copyFileSync(join(fixtures, 'hello.mjs'), join(folder, 'hello.mjs'))
      const same = [nodeHere(0, 2, ['hello.mjs']), nodeHere(1, 2, ['hello.mjs'], { cwd: folder })]
      expect((await allFinished(same)).map(({ code }) => code)).toEqual([0, 0])
      writeFileSync(join(folder, 'hello.mjs'), 'console.log("old")')
      const other = [nodeHere(0, 2, ['hello.mjs']), nodeHere(1, 2, ['hello.mjs'], { cwd: folder })]
      for (const { code, stderr } of await allFinished(other)) {
        expect(code).toBe(2)
        expect(stderr).toContain('has a different script')
      }
    } finally {
      rmSync(folder, { recursive: true })
    }
  })

  it('a node with another token, and continues without that node', async () => {
    const zero = nodeHere(0, 2, ['hello.mjs'])
    const stranger = nodeHere(1, 2, ['hello.mjs'], { env: { TSRUN_TOKEN: 'ab'.repeat(16) } })
    const { code, stderr } = await stranger.finished
    expect(code).toBe(2)
    expect(stderr).toContain('have different tokens')
    await until(
      () => zero.stderr.includes('refused a connection from 127.0.0.1:'),
      'node 0 says so',
    )
    expect(
      (await allFinished([zero, nodeHere(1, 2, ['hello.mjs'])])).map((end) => end.code),
    ).toEqual([0, 0])
  })

  it('a node without a token', async () => {
    const { code, stderr } = await nodeHere(0, 2, ['hello.mjs'], { env: { TSRUN_TOKEN: '' } })
      .finished
    expect(code).toBe(2)
    expect(stderr).toContain('needs a secret that all of them share')
    expect(stderr).toContain('openssl rand -hex 32')
  })
})

it('--dry-run shows the source of each setting, and the ranks of this host', async () => {
  const slurm = { SLURM_NODEID: '1', SLURM_NNODES: '2', SLURM_NTASKS: '2', SLURM_STEP_ID: '0' }
  const env = { ...slurm, SLURM_JOB_NODELIST: 'n[1-2]', TSRUN_TOKEN: token }
  const args = ['--nproc', '2', '--dry-run', 'hello.mjs']
  const { code, stdout, stderr } = await tsrunHere(args, { env })
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
