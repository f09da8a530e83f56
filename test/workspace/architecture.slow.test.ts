import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../../', import.meta.url))

describe('the report on the architecture', () => {
  it('prints a figure for each limit of this checkout', () => {
    const script = join(root, 'scripts/architecture/report.mjs')
    const { status, stdout } = spawnSync(process.execPath, [script, root], { encoding: 'utf8' })
    expect(status).toBe(0)
    expect(stdout).toMatch(/^tokens of all packages +[\d,]{7} +478,000$/m)
    expect(stdout).toMatch(/^files of the walk batch +\d\d +19$/m)
    expect(stdout).toMatch(/^programs in strings +0 +0$/m)
    expect(stdout).toMatch(/^training( +[\d,]+){5}$/m)
  })
})
