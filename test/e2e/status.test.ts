import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { killLeftovers, Run, tsrun, untilGone } from '../launcher/support/tsrun.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)
const cwd = fileURLToPath(new URL('../fixtures/ranks/', import.meta.url))

/** Asks `tsrun ps` until it says this. */
async function untilShown(holds: (text: string) => boolean): Promise<string> {
  for (;;) {
    const { stdout } = await tsrun(['ps'])
    if (holds(stdout)) return stdout
  }
}

/** The title, the titles of the columns and four ranks of the job whose title holds this. */
function rowsOf(text: string, job: string): string[] {
  const lines = text.split('\n')
  const start = lines.findIndex((line) => line.includes(job))
  return start < 0 ? [] : lines.slice(start, start + 6)
}

async function startStuck(env: NodeJS.ProcessEnv = {}): Promise<Run> {
  const run = new Run(['--nproc', '4', '--grace', '0.3', 'never-enters.mjs'], {
    cwd,
    env: { ELSEWHERE: 'loop', TIMEOUT: '600000', ...env },
  })
  await run.announced(4)
  return run
}

describe.each([
  { name: 'worker engine', env: {} },
  { name: 'inline engine', env: { TSRUN_ENGINE: 'inline' } },
  { name: 'without koffi', env: { TSRUN_NATIVE: 'off' } },
])('tsrun ps ($name)', ({ env }) => {
  it('shows the operations of all ranks, including a stuck rank and the ranks that wait for it', async () => {
    const run = await startStuck(env)
    const text = await untilShown((shown) => {
      const rows = rowsOf(shown, `(tsrun ${run.pid},`).slice(2)
      return rows.filter((row) => / waiting .+ #5 of world +4 KiB +\d/.test(row)).length === 3
    })
    const top = await tsrun(['top', '--once', '--interval', '0.2'])
    expect(top).toMatchObject({ code: 0 })
    const watched = rowsOf(top.stdout, `(tsrun ${run.pid},`)
    expect(watched[1]).toMatch(/^rank +state .* CPU .* operation$/)
    expect(watched[2]).toMatch(/^0 +waiting .* \d+ % .* allReduce/)
    const [title, titles, ...rows] = rowsOf(text, `(tsrun ${run.pid},`)
    expect(title).toContain(`(tsrun ${run.pid}, 4 of 4 ranks here)`)
    expect(titles).toMatch(/^rank +pid +state/)
    expect(rows[2]).toMatch(
      /^2 +\d+ +(running|waiting|communicating) +.+allReduce\(sum\) float32\[1024\] .+#\d of world/,
    )
    expect(rows[0]).toMatch(/ 2 +7 +0\.5000$/)
    const [runId] = title!.split(' ')
    expect((await tsrun(['ps', runId!])).stdout).toContain(title)
    run.signal('SIGTERM')
    await run.finished
  })
})

it('tsrun top shows the GPU of each rank, and asks nvidia-smi once for all', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-top-'))
  const path = join(folder, 'nvidia-smi')
  const script = `#!/bin/sh
    case $1 in
      -L) echo 'GPU 0: One (UUID: GPU-aa)'; echo 'GPU 1: Two (UUID: GPU-bb)' ;;
      --query-gpu=index,uuid,utilization.gpu,memory.used)
        echo asked >>${folder}/asked
        echo '0, GPU-aa, 93, 4096'; echo '1, GPU-bb, [N/A], 512' ;;
      *) exit 9 ;;
    esac\n`
  writeFileSync(path, script, { mode: 0o755 })
  const env = { PATH: `${folder}:${process.env['PATH'] ?? ''}` }
  try {
    const run = await startStuck(env)
    const title = `(tsrun ${run.pid},`
    await untilShown((shown) => (rowsOf(shown, title)[5] ?? '').includes(' of world'))
    const { code, stdout } = await tsrun(['top', '--once', '--interval', '0.2'], { env })
    expect(code).toBe(0)
    const [, titles, ...rows] = rowsOf(stdout, title)
    expect(titles).toMatch(/ memory +GPU +GPU memory +waits /)
    // The GPUs go to the ranks in turn.
    for (const row of [rows[0], rows[2]]) expect(row).toMatch(/ 93 % +4(\.0)? GiB /)
    for (const row of [rows[1], rows[3]]) expect(row).toMatch(/ – +512 MiB /)
    expect(readFileSync(join(folder, 'asked'), 'utf8')).toBe('asked\n')
    run.signal('SIGTERM')
    await run.finished
  } finally {
    rmSync(folder, { recursive: true })
  }
})

it('no status page is left after all processes of a job are killed', async () => {
  const run = await startStuck()
  const ranks = await run.announced(4)
  await untilShown((shown) => rowsOf(shown, `(tsrun ${run.pid},`).length > 0)
  for (const { pid } of ranks) process.kill(pid, 'SIGKILL')
  run.signal('SIGKILL')
  await run.finished
  await untilGone(ranks.map(({ pid }) => pid))
  expect((await tsrun(['ps'])).stdout).not.toContain(`(tsrun ${run.pid},`)
  for (const folder of ['/dev/shm', tmpdir()]) {
    expect(readdirSync(folder).filter((name) => name.startsWith('tsrun-status'))).toEqual([])
  }
})
