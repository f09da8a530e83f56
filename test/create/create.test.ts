import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const program = fileURLToPath(new URL('../../packages/create/bin/create-tsrun.js', import.meta.url))

let cwd: string
beforeEach(() => {
  cwd = mkdtempSync(join(tmpdir(), 'tsrun-create-'))
})
afterEach(() => {
  rmSync(cwd, { recursive: true })
})

/** `npm create @tsrun` with these arguments. */
function create(...args: readonly string[]) {
  return spawnSync(process.execPath, [program, ...args], { cwd, encoding: 'utf8' })
}

describe('npm create @tsrun', () => {
  it('writes the files of a project, and says what to do next', () => {
    const { status, stdout } = create('my-model')
    expect(status).toBe(0)
    expect(stdout).toContain('Next:\n  cd my-model\n  npm install\n  npm run train\n')
    const home = join(cwd, 'my-model')
    const files = ['.gitignore', 'package.json', 'train.test.ts', 'train.ts', 'tsconfig.json']
    expect(readdirSync(home).sort()).toEqual(files)
    const { dependencies } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>
    }
    expect(Object.keys(dependencies)).toContain('@tsrun/launcher')
  })

  it('overwrites no script', () => {
    create()
    const { status, stderr } = create()
    expect(status).toBe(2)
    expect(stderr).toContain('train.ts is there already: choose another folder')
  })
})
