import { spawnSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { cleanEnvironment } from '../launcher/support/tsrun.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), 'tsrun-test-'))
/** Has what npm installs for the launcher, and no more. */
const installed = join(scratch, 'installed')
/** Has optional packages, for a tsrun that is installed elsewhere. */
const project = join(scratch, 'project')

beforeAll(() => {
  const modules = join(installed, 'node_modules')
  mkdirSync(join(modules, '@tsrun'), { recursive: true })
  for (const name of readdirSync(join(root, 'node_modules'))) {
    if (name.startsWith('.') || name === '@tsrun') continue
    symlinkSync(join(root, 'node_modules', name), join(modules, name))
  }
  for (const name of ['core', 'native', 'store', 'distributed', 'launcher']) {
    for (const part of ['package.json', 'dist', 'bin']) {
      const source = join(root, 'packages', name, part)
      if (existsSync(source)) {
        cpSync(source, join(modules, '@tsrun', name, part), { recursive: true })
      }
    }
  }
  writeFileSync(
    join(installed, 'rank.mjs'),
    `import { destroyProcessGroup, initProcessGroup } from '@tsrun/distributed'
const group = await initProcessGroup()
for (const step of [1, 2]) {
  await group.barrier()
  group.reportProgress({ step })
}
await destroyProcessGroup()
process.exitCode = Number(process.env.CODE ?? 0)
`,
  )
  mkdirSync(join(project, 'node_modules/@tsrun'), { recursive: true })
})
afterEach(() => {
  for (const name of ['doctor', 'observe']) {
    rmSync(join(project, 'node_modules/@tsrun', name), { recursive: true, force: true })
  }
})
afterAll(() => {
  rmSync(scratch, { recursive: true })
})

function run(args: readonly string[], { cwd = installed, code = 0 } = {}) {
  const bin = join(installed, 'node_modules/@tsrun/launcher/bin/tsrun.js')
  const env = { ...cleanEnvironment(), CODE: String(code) }
  return spawnSync(process.execPath, [bin, ...args], { cwd, env, encoding: 'utf8' })
}

/** What `tsrun` prints of a package that is not installed. */
const missing = (what: string, name: string): string =>
  `tsrun: ${what} needs a package that is not installed: \`npm install @tsrun/${name}\`. ` +
  'Run that command in the folder of your script. (ERR_TSR_PACKAGE_MISSING)\n'

it.each([
  ['--dashboard', ['--dashboard', '0', 'rank.mjs']],
  ['--metrics', ['--metrics', '0', 'rank.mjs']],
  ['tsrun trace', ['trace', '.']],
  ['tsrun view', ['view', '.']],
])('without @tsrun/observe, %s says what to install', (what, args) => {
  const { status, stdout, stderr } = run(args)
  expect(stderr).toBe(missing(what, 'observe'))
  expect([status, stdout]).toEqual([2, ''])
})

it.each(['trace', 'view'])('without @tsrun/observe, tsrun %s --help works', (command) => {
  const { status, stdout } = run([command, '--help'])
  expect(stdout).toContain(`tsrun ${command} <folder..>`)
  expect(status).toBe(0)
})

it.each([
  ['doctor', []],
  ['doctor', ['--help']],
  ['env', ['--json']],
  ['setup', ['blas', '--check']],
])('without @tsrun/doctor, tsrun %s %j says what to install', (command, args) => {
  const { status, stdout, stderr } = run([command, ...args])
  expect(stderr).toBe(missing(`tsrun ${command}`, 'doctor'))
  expect([status, stdout]).toEqual([2, ''])
})

it('tsrun --help lists tsrun doctor without @tsrun/doctor', () => {
  const { status, stdout } = run(['--help'])
  expect(stdout).toMatch(/^ +tsrun doctor +check what this host has/m)
  expect(status).toBe(0)
})

it('tsrun finds the commands of @tsrun/doctor in the folder of the user', () => {
  symlinkSync(join(root, 'packages/doctor'), join(project, 'node_modules/@tsrun/doctor'))
  const { status, stdout, stderr } = run(['setup', 'blas', '--check'], { cwd: project })
  expect(stderr).toBe('')
  expect(stdout).toMatch(/^tsrun setup: OpenBLAS is not set up in .*: run `npx tsrun setup blas`$/m)
  expect(status).toBe(1)
})

it.each([0, 3])(
  'without @tsrun/observe, --trace records and keeps the exit code %i of the ranks',
  (code) => {
    const { status, stderr } = run(['--nproc', '2', '--trace', `spans-${code}`, 'rank.mjs'], {
      code,
    })
    expect(stderr.trimEnd().split('\n').at(-1)).toMatch(
      new RegExp(
        `trace: the spans are in (/\\S+/spans-${code}); \`npm install @tsrun/observe\`, then \`tsrun trace \\1\``,
      ),
    )
    expect(readdirSync(join(installed, `spans-${code}`))).toEqual(['spans'])
    expect(status).toBe(code)
  },
)

it('tsrun finds @tsrun/observe in the folder of the user if tsrun is installed elsewhere', () => {
  symlinkSync(join(root, 'packages/observe'), join(project, 'node_modules/@tsrun/observe'))
  run(['--nproc', '2', '--trace', join(scratch, 'traced'), 'rank.mjs'])
  const { status, stdout, stderr } = run(['trace', '../traced'], { cwd: project })
  expect(stderr).toBe('')
  expect(stdout).toMatch(/^run .*: 2 ranks on 1 host/)
  expect(status).toBe(0)
})

/** Installs @tsrun/observe 0.0.9, which must not be loaded. */
function installOther(place: string): string {
  const folder = join(place, 'node_modules/@tsrun/observe')
  mkdirSync(join(folder, 'dist'), { recursive: true })
  const manifest = JSON.parse(
    readFileSync(join(root, 'packages/observe/package.json'), 'utf8'),
  ) as Record<string, unknown>
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ ...manifest, version: '0.0.9' }))
  writeFileSync(join(folder, 'dist/index.js'), 'throw new Error("it was loaded")')
  return folder
}

it('tsrun prefers the @tsrun/observe of its own version in the folder of the user', () => {
  symlinkSync(join(root, 'packages/observe'), join(project, 'node_modules/@tsrun/observe'))
  const other = installOther(installed)
  const { status, stderr } = run(['trace', '../traced'], { cwd: project })
  rmSync(other, { recursive: true })
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
})

it('tsrun refuses @tsrun/observe of another version, and names both versions', () => {
  installOther(project)
  const { status, stderr } = run(['trace', '.'], { cwd: project })
  expect(stderr).toMatch(/@tsrun\/observe is of version 0\.0\.9 and tsrun of \d/)
  expect(status).toBe(2)
})
