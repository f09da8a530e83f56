import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { port, token } from '../launcher/support/nodes.ts'
import { killLeftovers, Run, tsrun, until, untilGone } from '../launcher/support/tsrun.ts'

/*
 * Lines from torchrun's documentation, with `tsrun` in place of `torchrun` and a script of ours: a line
 * that people have in their fingers does the same here, or says what to use.
 */

let folder: string
beforeAll(() => (folder = mkdtempSync(join(tmpdir(), 'tsrun-lines-'))))
afterAll(() => {
  rmSync(folder, { recursive: true })
})
afterEach(killLeftovers)

/** Lines that start two ranks here. */
const works = [
  'torchrun --standalone --nnodes=1 --nproc-per-node=2 hello.mjs',
  'torchrun --nproc_per_node=2 --standalone hello.mjs --arg1 --arg2',
  'torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:0 --nnodes=1 --nproc-per-node=2 hello.mjs',
  'torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:0 --nnodes=1:2 --nproc-per-node=2 hello.mjs',
  'torchrun --nnodes=1:1 --nproc-per-node=2 --max-restarts=3 --monitor-interval=0.1 hello.mjs',
  'torchrun --nproc-per-node=2 --role=trainer --start-method=spawn --numa-binding=node hello.mjs',
  'torchrun --run-path --nproc-per-node=2 --signals-to-handle=SIGTERM,SIGUSR1 ./hello.mjs',
]

/** Lines that are refused, and a part of the message. */
const refused = [
  ['torchrun --nproc-per-node=gpu hello.mjs', '--nproc is gpu, but this host has none'],
  ['torchrun --rdzv-backend=etcd hello.mjs', 'expected c10d or static'],
  ['torchrun --logs-specs=mine hello.mjs', '--log-dir, --redirects and --tee'],
  ['torchrun --event-log-handler=mine hello.mjs', '--event-log FILE'],
  ['torchrun --start-method=fork hello.mjs', 'expected spawn'],
  [
    'torchrun --rdzv-conf=is_hos=1 --rdzv-endpoint=a:1 --nnodes=2 hello.mjs',
    'has is_hos; expected one of timeout',
  ],
]

it('docs/torch.md lists these command lines and their outcomes', () => {
  const page = readFileSync(new URL('../../docs/torch.md', import.meta.url), 'utf8')
  for (const line of works) expect(page).toMatch(rowOf(line, 'runs'))
  for (const [line] of refused) expect(page).toMatch(rowOf(line!, 'refused: '))
})

/** How a row of the table begins. */
function rowOf(line: string, outcome: string): RegExp {
  const escaped = line.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return new RegExp(`^\\| \`${escaped}\` +\\| ${outcome}`, 'm')
}

/** The arguments of a line, which has no quotes. */
const split = (line: string): string[] => line.split(' ').slice(1)

const hello = (ranks: number): string[] =>
  Array.from({ length: ranks }, (_, rank) => `hello from rank ${rank} of ${ranks}`)

/** What the ranks printed, sorted. */
const said = (...runs: readonly { readonly stdout: string }[]): string[] =>
  runs
    .flatMap(({ stdout }) => stdout.trim().split('\n'))
    .map((line) => line.replace(/^\[rank \d+\] /, ''))
    .toSorted()

describe('one host', () => {
  it.each(works)('%s', async (line) => {
    const run = await tsrun(split(line))
    expect(run).toMatchObject({ code: 0 })
    expect(said(run)).toEqual(hello(2))
  })

  it('torchrun --redirects=3 --tee=0:1 --log-dir=... writes a file per rank, and shows rank 0', async () => {
    const line = `torchrun --nproc-per-node=2 --redirects=3 --tee=0:1 --log-dir=${folder} hello.mjs`
    const run = await tsrun(split(line))
    expect(said(run)).toEqual(hello(2).slice(0, 1))
    const [runId] = readdirSync(folder)
    const log = join(folder, runId!, 'attempt_0', '1', 'stdout.log')
    expect(readFileSync(log, 'utf8')).toBe('hello from rank 1 of 2\n')
  })

  it('torchrun --local-ranks-filter=1 --duplicate-stdout-filters=... shows rank 1 and copies lines to a file', async () => {
    const filters = '--local-ranks-filter=1 --duplicate-stdout-filters=rank 0,nothing'
    const run = await tsrun([
      ...filters.split(' --').map((flag) => flag.replace(/^(--)?/, '--')),
      ...split('t --nproc-per-node=2 hello.mjs'),
    ])
    expect(said(run)).toEqual(['hello from rank 1 of 2'])
    const [, logs] = /log files: (.*)/.exec(run.stderr)!
    const [runId] = readdirSync(logs!)
    const filtered = join(logs!, runId!, 'attempt_0', 'filtered_stdout.log')
    expect(readFileSync(filtered, 'utf8')).toBe('hello from rank 0 of 2\n')
    rmSync(logs!, { recursive: true })
  })

  it.each(refused)('%s is refused: %s', async (line, problem) => {
    const { code, stderr } = await tsrun(split(line), { env: { CUDA_VISIBLE_DEVICES: '' } })
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(problem) })
  })
})

describe('two hosts', () => {
  const env = { TSRUN_TOKEN: token }

  it('torchrun --rdzv-id=... --rdzv-backend=c10d numbers hosts as they arrive', async () => {
    const line = `torchrun --nnodes=2 --nproc-per-node=2 --max-restarts=3 --rdzv-id=mine --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:${port} --rdzv-conf=timeout=60,read_timeout=30 hello.mjs`
    const runs = await Promise.all([0, 1].map(() => tsrun(split(line), { env })))
    expect(runs).toMatchObject([{ code: 0 }, { code: 0 }])
    expect(said(...runs)).toEqual(hello(4))
  })

  it('torchrun --node-rank=... --master-addr=... --master-port=...', async () => {
    const runs = await Promise.all(
      [0, 1].map((node) =>
        tsrun(
          split(
            `torchrun --nproc_per_node=1 --nnodes=2 --node_rank=${node} --master_addr=127.0.0.1 --master_port=${port} hello.mjs`,
          ),
          { env },
        ),
      ),
    )
    expect(runs).toMatchObject([{ code: 0 }, { code: 0 }])
    expect(said(...runs)).toEqual(hello(2))
  })

  it('refuses a host of another job', async () => {
    const line = (id: string): string[] =>
      split(
        `torchrun --nnodes=2 --rdzv-id=${id} --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:${port} hello.mjs`,
      )
    const runs = await Promise.all(['mine', 'yours'].map((id) => tsrun(line(id), { env })))
    for (const { code, stderr } of runs) {
      expect({ code, stderr }).toEqual({
        code: 2,
        stderr: expect.stringMatching(/--rdzv-id (mine|yours), and node 0/),
      })
    }
  })
})

describe('torchrun --no-python', () => {
  const program = (...command: string[]): string[] => [
    '--no-python',
    '--nproc-per-node=2',
    ...command,
  ]

  it('leaves MASTER_PORT to the programs, whose rank 0 can listen there', async () => {
    // what PyTorch does with env://, in as many lines as a test may have
    const rendezvous = `
      const { MASTER_ADDR: host, MASTER_PORT: port, RANK } = process.env
      const net = require('node:net')
      const say = (socket) => socket.on('data', (text) => (console.log(String(text)), socket.end()))
      const dial = () => say(net.connect(port, host).on('error', () => setTimeout(dial, 50)))
      if (RANK === '1') dial()
      else {
        const server = net.createServer((socket) => (socket.end('met'), server.close()))
        server.listen(port, host)
      }`
    const run = await tsrun(program(process.execPath, '-e', rendezvous))
    expect(run).toMatchObject({ code: 0 })
    expect(run.stdout).toBe('[rank 1] met\n')
  })

  it('joins tsrun processes that a program starts', async () => {
    const script = fileURLToPath(new URL('../fixtures/launcher/meets.mjs', import.meta.url))
    const run = await tsrun(program('sh', '-c', `exec '${process.execPath}' '${script}'`))
    expect(run).toMatchObject({ code: 0 })
    expect(said(run)).toEqual(['rank 0: the sum is 1', 'rank 1: the sum is 1'])
  })

  it('runs any program, with the environment of a rank', async () => {
    const run = await tsrun(program('sh', '-c', 'echo "hello from rank $RANK of $WORLD_SIZE"'))
    expect(run).toMatchObject({ code: 0 })
    expect(said(run)).toEqual(hello(2))
  })

  it('reports the exit of the program, and does not ignore SIGPIPE in it', async () => {
    const run = await tsrun(program('sh', '-c', 'yes | head -1; exit 3'))
    expect(run).toMatchObject({ code: 3, stderr: expect.stringContaining('exited with code 3') })
    expect(run.stderr).not.toContain('Broken pipe')
  })

  it('stops the program with the job, and kills it with the launcher', async () => {
    const run = new Run(program('sh', '-c', 'echo "ready rank=$RANK pid=$$ at=0"; sleep 100'))
    const ranks = await run.announced(2)
    run.signal('SIGKILL')
    await until(() => ranks.every(({ pid }) => !isAlive(pid)), 'both programs are gone')
    const second = new Run(program('sh', '-c', 'echo "ready rank=$RANK pid=$$ at=0"; sleep 100'))
    const pids = (await second.announced(2)).map(({ pid }) => pid)
    second.signal('SIGTERM')
    expect(await second.finished).toMatchObject({ code: 143 })
    await untilGone(pids)
  })
})

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
