import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { itOnDisk } from './support/mounts.ts'

const fixture = fileURLToPath(new URL('../fixtures/training/small-disk.mjs', import.meta.url))

itOnDisk('a full or read-only disk is reported, and earlier checkpoints are kept', () => {
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
