import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fixtures, killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

let folder = ''
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  killLeftovers()
  rmSync(folder, { recursive: true, force: true })
})

it('a launcher frees the memory of earlier attempts', async () => {
  const file = join(folder, 'heap')
  const args = ['--nproc', '8', '--max-restarts', '6', '--grace', '1', '--no-summary']
  const { code } = await tsrun([...args, 'many-lines.mjs'], {
    env: {
      HEAP_FILE: file,
      NODE_OPTIONS: `--import ${join(fixtures, 'heap.mjs')}`,
      TMPDIR: folder,
    },
  })
  expect(code).toBe(1)
  const used = readFileSync(file, 'utf8').trim().split('\n').map(Number)
  expect(used).toHaveLength(6)
  // each attempt has written 1.6 MB that are kept for its report
  expect((used.at(-1)! - used[1]!) / 2 ** 20).toBeLessThan(2)
})
