import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { killLeftovers, tsrun, untilGone } from '../launcher/support/tsrun.ts'
import { describePs, rowsOf, startStuck, untilShown, writers } from './support/status.ts'

afterEach(killLeftovers)

describePs(writers.slice(0, 1))

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
