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

it('the architecture page, its drawings and its walks agree with the sources', () => {
  const script = join(root, 'scripts/architecture/main.mjs')
  const { status, stderr } = spawnSync(process.execPath, [script, '--check'], { encoding: 'utf8' })
  // Out of date? `npm run docs` rewrites them.
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
})
