import { jest } from '@jest/globals'
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tsrunHere } from '../support/in-process.ts'

const files = ['.gitignore', 'package.json', 'train.test.ts', 'train.ts', 'tsconfig.json']

let cwd: string
beforeEach(() => {
  cwd = mkdtempSync(join(tmpdir(), 'tsrun-init-'))
})
afterEach(() => {
  rmSync(cwd, { recursive: true })
})

interface Manifest {
  readonly type: string
  readonly scripts: Record<string, string>
  readonly dependencies: Record<string, string>
  readonly devDependencies: Record<string, string>
}

function readManifest(path: string): Manifest {
  return JSON.parse(readFileSync(path, 'utf8')) as Manifest
}

describe('tsrun init', () => {
  it('writes a project into a new folder and prints the next commands', async () => {
    const { code, stdout } = await tsrunHere(['init', 'deep/my model'], { cwd })
    expect(code).toBe(0)
    const home = join(cwd, 'deep/my model')
    expect(readdirSync(home).sort()).toEqual(files)
    expect(stdout).toBe(
      [
        `tsrun init: ${home}`,
        ...['package.json', 'train.ts', 'train.test.ts', 'tsconfig.json', '.gitignore'].map(
          (name) => `  wrote     ${name}`,
        ),
        'Next:',
        "  cd 'deep/my model'",
        '  npm install',
        '  npm run train',
        '  npm test',
        '',
      ].join('\n'),
    )
  })

  it('depends on the versions with which tsrun is tested', async () => {
    await tsrunHere(['init'], { cwd })
    const root = readManifest(new URL('../../../package.json', import.meta.url).pathname)
    const launcher = new URL('../../../packages/launcher/package.json', import.meta.url).pathname
    const { version } = JSON.parse(readFileSync(launcher, 'utf8')) as { version: string }
    const { type, dependencies, devDependencies } = readManifest(join(cwd, 'package.json'))
    expect(type).toBe('module')
    for (const [name, range] of Object.entries({ ...dependencies, ...devDependencies })) {
      const tested = name.startsWith('@tsrun/') ? version : root.devDependencies[name]!
      expect([name, range.replace(/^[~^]/, '')]).toEqual([name, tested.replace(/^[~^]/, '')])
    }
  })

  it('adds missing settings to a package.json and keeps the existing ones', async () => {
    const own = {
      name: 'mine',
      scripts: { train: 'node mine.js' },
      devDependencies: { tsx: '4.0.0' },
    }
    writeFileSync(join(cwd, 'package.json'), JSON.stringify(own, null, '\t'))
    writeFileSync(join(cwd, 'tsconfig.json'), '{}')
    const { stdout } = await tsrunHere(['init', '.'], { cwd })
    expect(stdout).toContain('  completed package.json\n')
    expect(stdout).toContain('  kept      tsconfig.json\n')
    expect(stdout).toMatch(
      /Next:\n {2}npm install\n {2}npx tsrun --nproc 2 train\.ts\n {2}node .*--test train\.test\.ts\n$/,
    )
    expect(readFileSync(join(cwd, 'tsconfig.json'), 'utf8')).toBe('{}')
    expect(readFileSync(join(cwd, 'package.json'), 'utf8')).toMatch(/^{\n\t"name": "mine",\n/)
    const { type, scripts, dependencies, devDependencies } = readManifest(join(cwd, 'package.json'))
    expect(type).toBe('module')
    expect(scripts).toMatchObject({
      train: 'node mine.js',
      test: expect.stringContaining('--test'),
    })
    expect(dependencies).toHaveProperty('@tsrun/training')
    expect(devDependencies).toMatchObject({
      tsx: '4.0.0',
      typescript: expect.any(String) as string,
    })
  })

  it.each([
    ['train.ts', 'mine', /^tsrun: train\.ts is there already: choose another folder/],
    [
      'package.json',
      '{ "type": "commonjs" }',
      /^tsrun: package\.json has "type": "commonjs", and /,
    ],
    ['package.json', '[]', /^tsrun: package\.json is not a JSON object: mend it, or choose/],
  ])('does not change a folder that has another %s (%s)', async (name, text, message) => {
    writeFileSync(join(cwd, name), text)
    const { code, stdout, stderr } = await tsrunHere(['init'], { cwd })
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toMatch(message)
    expect(stderr.trimEnd()).not.toContain('\n')
    expect(readdirSync(cwd)).toEqual([name])
    expect(readFileSync(join(cwd, name), 'utf8')).toBe(text)
  })

  it('says why it cannot use a folder', async () => {
    writeFileSync(join(cwd, 'file'), '')
    const isFile = await tsrunHere(['init', 'file'], { cwd })
    expect(isFile.stderr).toMatch(/^tsrun: the project cannot be written: ENOTDIR/)
  })

  it('never writes through a symbolic link, and nothing if it cannot write package.json', async () => {
    symlinkSync(join(cwd, 'elsewhere'), join(cwd, 'train.ts'))
    expect((await tsrunHere(['init'], { cwd })).stderr).toMatch(/^tsrun: train\.ts is there/)
    expect(readdirSync(cwd)).toEqual(['train.ts'])
    unlinkSync(join(cwd, 'train.ts'))
    const name = jest.spyOn(crypto, 'randomUUID').mockReturnValue('0-0-0-0-0')
    mkdirSync(join(cwd, 'package.json.0-0-0-0-0'))
    writeFileSync(join(cwd, 'package.json'), '\ufeff{}')
    expect((await tsrunHere(['init'], { cwd })).stderr).toMatch(/^tsrun: the project cannot be w/)
    name.mockRestore()
    expect(readdirSync(cwd)).toHaveLength(2)
  })
})
