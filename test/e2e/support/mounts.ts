import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { needing } from '../../needs.ts'

/** Whether a process gets a namespace where it may mount file systems of its own. */
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

/** A test that needs a file system of its own. */
export const { it: itOnDisk } = needing(canMount(), 'namespace to mount a disk in')
