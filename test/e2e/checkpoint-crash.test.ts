import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { jest } from '@jest/globals'
import { seededRandom } from '@tsrun/core'
import { latestCheckpoint, loadCheckpoint, type Piece } from '@tsrun/training'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

/** How often saving is killed; any number with `SAVES=200 npm test -- test/e2e/checkpoint-crash`. */
const kills = Number(process.env['SAVES'] ?? 3)
const random = seededRandom(Number(process.env['SAVES_SEED'] ?? 1))

jest.setTimeout(120_000 + 2000 * kills)
afterEach(killLeftovers)

const fixture = (name: string) =>
  fileURLToPath(new URL(`../fixtures/training/${name}`, import.meta.url))

describe('a crash while a checkpoint is saved', () => {
  it('during any file operation keeps the last good checkpoint, and the next one succeeds', async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [fixture('cut-saves.mjs')])
    const cuts = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>)
    expect(cuts.length).toBeGreaterThan(20)
    expect(new Set(cuts.map(({ operation }) => operation))).toEqual(
      new Set([
        'mkdir',
        'readdir',
        'open',
        'write',
        'sync',
        'close',
        'rename',
        'lstat',
        'rm',
        'none',
      ]),
    )
    // first the old one, from the moment on that the new one has its name the new one
    const loaded = cuts.map((cut) => cut['loaded'] as number)
    expect(loaded).toEqual(loaded.map((_, i) => (i < loaded.indexOf(3) ? 2 : 3)))
    for (const cut of cuts) {
      const former = `step-0000000${String(cut['loaded'])}`
      expect(cut).toMatchObject({ skipped: 0, next: 4, left: [former, 'step-00000004'] })
    }
  })

  it('by SIGKILL keeps the last good checkpoint', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-killed-'))
    try {
      for (let kill = 0; kill < kills; kill++) {
        const delay = random() * 12
        const child = spawn(process.execPath, [fixture('endless-saves.mjs'), folder], {
          stdio: ['ignore', 'pipe', 'inherit'],
        })
        const ended = once(child, 'exit')
        let saved = 0
        for await (const line of createInterface({ input: child.stdout })) {
          saved = Number(line.split(' ')[1])
          if (saved !== 2) continue
          // anywhere in the next ones: each moment is as good
          await pause(delay)
          child.kill('SIGKILL')
        }
        await ended
        const { step, skipped } = (await latestCheckpoint(folder))!
        const finished = skipped.filter(({ path }) => !path.endsWith('.unfinished'))
        expect(finished).toEqual([])
        // of this process, which began again with step 1: the last one that was saved counts
        expect(step).toBeGreaterThanOrEqual(saved)
        await check(folder, step)
      }
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })
})

describe('the file system', () => {
  const folderRefusals = [
    ...['EINVAL', 'ENOSYS', 'ENOTSUP', 'EPERM', 'EISDIR', 'EBADF'].map((code) => `${code} folders`),
    ...['EACCES', 'EPERM', 'EISDIR'].map((code) => `${code} open`),
  ]
  const fileRefusals = ['EINVAL files', 'ENOSYS files', 'ENOTSUP files']
  const failures = ['EIO folders', 'EIO files', 'ENOSPC files', 'EPERM files']
  /** What saving gives, by what the file system refuses. */
  let saved: Map<string, unknown>

  beforeAll(async () => {
    const refusals = ['', ...folderRefusals, ...fileRefusals, ...failures]
    const args = [fixture('synced-folders.mjs'), ...refusals]
    const { stdout } = await promisify(execFile)(process.execPath, args)
    const lines = stdout.trim().split('\n')
    expect(lines).toHaveLength(refusals.length)
    saved = new Map(refusals.map((refusal, i) => [refusal, JSON.parse(lines[i]!) as unknown]))
  })

  it('syncs the first checkpoint and its new folders to disk', () => {
    const files = 'runs/first/.step-00000001.unfinished'
    // '' has the name of runs, and so on; the last one that of the checkpoint
    expect(saved.get('')).toEqual(['runs', '', files, files, 'runs/first'])
  })

  it.each(folderRefusals)(
    'still gets a complete checkpoint if syncing a folder fails with %s',
    (refusal) => {
      expect(saved.get(refusal)).toEqual([])
    },
  )

  it.each(fileRefusals)(
    'still gets a complete checkpoint if syncing a file fails with %s',
    (refusal) => {
      expect(saved.get(refusal)).toContain('runs/first')
    },
  )

  it.each(failures)('that fails with %s is distinguished from one that cannot sync', (refusal) => {
    expect(saved.get(refusal)).toBe('ERR_TSR_CHECKPOINT_WRITE')
  })
})

describe('a job that loses a rank', () => {
  it('resumes from its checkpoint when tsrun restarts it, with the same losses', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-restarted-'))
    try {
      const train = async (name: string, ...flags: string[]) => {
        const job = ['--nproc', '2', '--max-restarts', '1', '--log-format', 'raw', '--no-summary']
        const script = [fixture('crash-and-continue.mjs'), join(folder, name), ...flags]
        const { code, stdout } = await tsrun([...job, ...script])
        expect(code).toBe(0)
        return stdout
          .trim()
          .split('\n')
          .map((line) => JSON.parse(line) as { step: number; loss: number })
      }
      const whole = await train('whole')
      expect(whole.map(({ step }) => step)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
      const steps = await train('stopped', 'crash')
      // rank 1 is gone before step 5; the checkpoint is that of step 4, or where it was not done of 2
      const again = steps.findIndex(({ step }, i) => i > 0 && step <= steps[i - 1]!.step)
      expect([2, 4]).toContain(steps[again]!.step)
      expect(steps.at(-1)!.step).toBe(9)
      for (const { step, loss } of steps) expect(loss).toBe(whole[step]!.loss)
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })
})

/** All values of a checkpoint are those of its step. */
async function check(folder: string, step: number): Promise<void> {
  const parts = ['a', 'b', 'c'].map((name) => ({ name, shape: [300_000] }))
  let loaded: readonly Piece[] = []
  const model = {
    pieces: () => [],
    parts: () => parts,
    load: (pieces: readonly Piece[]) => {
      loaded = pieces
    },
  }
  await loadCheckpoint(folder, { model })
  expect(loaded.map(({ values }) => values.every((value) => value === step))).toEqual([
    true,
    true,
    true,
  ])
}
