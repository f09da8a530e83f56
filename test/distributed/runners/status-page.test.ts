import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openStatus } from '../../internals/distributed/engine.ts'
import { needing } from '../../needs.ts'

let folder: string
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  rmSync(folder, { recursive: true })
})

const { it: itOnLinux } = needing(process.platform === 'linux', 'Linux')

itOnLinux.each([2 ** 16, 2 ** 16 + 5, 5])(
  'a rank does not write its status into a file that is no status page, of %s bytes',
  (bytes) => {
    const path = join(folder, 'file')
    const text = 'x'.repeat(bytes)
    writeFileSync(path, text)
    expect(openStatus({ TSRUN_STATUS_PAGE: path }, 0)).toBeUndefined()
    expect(readFileSync(path, 'utf8')).toBe(text)
  },
)

itOnLinux('a rank does not wait for a FIFO in place of the status page', () => {
  const path = join(folder, 'fifo')
  execFileSync('mkfifo', [path])
  expect(openStatus({ TSRUN_STATUS_PAGE: path }, 0)).toBeUndefined()
})
