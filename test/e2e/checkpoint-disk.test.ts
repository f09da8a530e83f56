import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'

jest.setTimeout(60_000)

const fixture = fileURLToPath(new URL('../fixtures/training/small-disk.mjs', import.meta.url))

/** A namespace where a process may mount file systems of its own. */
function canMount(): boolean {
  const disk = mkdtempSync(join(tmpdir(), 'tsrun-mount-'))
  const script = 'mount -t tmpfs -o size=1m none "$0"'
  try {
    execFileSync('unshare', ['-rm', 'sh', '-c', script, disk], { stdio: 'ignore' })
    return true
  } catch {
    return false
  } finally {
    rmSync(disk, { recursive: true })
  }
}

const isPossible = canMount()
if (!isPossible) {
  it('skipped: no namespace to mount a small disk in', () => {
    expect(isPossible).toBe(false)
  })
}

const itOnDisk = isPossible ? it : it.skip

itOnDisk('a full or a read-only disk is told, and what was saved before stays', () => {
  const disk = mkdtempSync(join(tmpdir(), 'tsrun-disk-'))
  try {
    const output = execFileSync('unshare', ['-rm', process.execPath, fixture, disk], {
      encoding: 'utf8',
    })
    const saves = output.trim().split('\n')
    const failed = { code: 'ERR_TSR_CHECKPOINT_WRITE' }
    expect(saves.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { step: 1, code: 'saved', latest: 1 },
      { step: 2, code: 'saved', latest: 2 },
      {
        ...{ ...failed, step: 3, latest: 2, folder: ['step-00000001', 'step-00000002'] },
        reason: expect.stringMatching('ENOSPC') as string,
      },
      // there is room again
      { step: 4, code: 'saved', latest: 4 },
      { ...failed, step: 5, latest: 4, reason: expect.stringMatching('EROFS') as string },
    ])
  } finally {
    rmSync(disk, { recursive: true })
  }
})
