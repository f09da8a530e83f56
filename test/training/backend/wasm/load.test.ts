import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

// processes take long to start when the cores are loaded

const entry = new URL('../../../../packages/training/dist/index.js', import.meta.url)

describe('a process with the wasm backend', () => {
  it('exits on an uncaught error with code 1 and prints only the stack', () => {
    const program = `
      const { loadBackend } = await import(${JSON.stringify(entry.href)})
      await loadBackend('wasm')
      throw new Error('boom')`
    const { status, stderr } = spawnSync(
      process.execPath,
      ['--input-type=module', '--eval', program],
      { cwd: fileURLToPath(new URL('../../../..', import.meta.url)), encoding: 'utf8' },
    )
    expect(status).toBe(1)
    expect(stderr).toContain('Error: boom')
    expect(stderr.length).toBeLessThan(2000)
  })
})
