import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import {
  findModule,
  findProgram,
  findScript,
  loaderArguments,
  type Script,
} from '../../../internals/launcher/job.ts'

let cwd = ''
beforeAll(() => {
  cwd = mkdtempSync(join(tmpdir(), 'tsrun-script-'))
  mkdirSync(join(cwd, 'folder'))
  mkdirSync(join(cwd, 'node_modules/tsx'), { recursive: true })
  const files = {
    'a.mjs': '',
    'b.mts': '',
    'c.tsx': '',
    'folder/index.ts': '',
    shell: '#!/bin/sh\n',
    'main.py': '',
    'node_modules/tsx/package.json': '{ "name": "tsx", "main": "loader.mjs" }',
    'node_modules/tsx/loader.mjs': '',
  }
  for (const [name, text] of Object.entries(files)) writeFileSync(join(cwd, name), text)
})
afterAll(() => {
  rmSync(cwd, { recursive: true })
})

describe('the script', () => {
  it.each([
    ['a.mjs', 'javascript'],
    ['./b.mts', 'typescript'],
    ['c.tsx', 'tsx'],
  ])('%s is %s', (name, language) => {
    expect(findScript(name, cwd)).toEqual({ path: join(cwd, name), language })
  })

  it.each([
    ['none.ts', /there is no file/],
    ['a', /there is no file .*, but there is .*a\.mjs/],
    ['folder', /it is a directory, but there is .*index\.ts/],
    ['shell', /neither JavaScript nor TypeScript/],
    ['main.py', /neither JavaScript nor TypeScript/],
  ])('%s is refused', (name, problem) => {
    expect(() => findScript(name, cwd)).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_SCRIPT', message: expect.stringMatching(problem) }),
    )
  })
})

describe('a module', () => {
  it('is found by its package name, as import finds it', () => {
    const folder = join(cwd, 'node_modules/trainers')
    mkdirSync(folder, { recursive: true })
    writeFileSync(
      join(folder, 'package.json'),
      JSON.stringify({ exports: { './fast': { import: './fast.mjs' } } }),
    )
    writeFileSync(join(folder, 'fast.mjs'), '')
    expect(findModule('trainers/fast', cwd)).toEqual({
      path: join(folder, 'fast.mjs'),
      language: 'javascript',
    })
    expect(() => findModule('trainers/slow', cwd)).toThrow(/Cannot run trainers\/slow: .*slow/)
    expect(() => findModule('nowhere', cwd)).toThrow(/Cannot find package 'nowhere'/)
  })
})

describe('a program', () => {
  it('is found on the PATH, or by its path', () => {
    writeFileSync(join(cwd, 'run'), '', { mode: 0o755 })
    const found = { path: join(cwd, 'run'), language: 'program' }
    expect(findProgram('run', '/', { PATH: `/nowhere:${cwd}` })).toEqual(found)
    expect(findProgram('./run', cwd, {})).toEqual(found)
    expect(() => findProgram('run', cwd, { PATH: '/nowhere' })).toThrow(/no folder of the PATH/)
    expect(() => findProgram('./a.mjs', cwd, {})).toThrow(/or it is not executable/)
  })

  it('is found without its ending and by the variables of Windows', () => {
    writeFileSync(join(cwd, 'tool.exe'), '', { mode: 0o755 })
    const found = { path: join(cwd, 'tool.exe'), language: 'program' }
    expect(findProgram('tool', '/', { Path: cwd, PATHEXT: '.COM;.EXE;.BAT' })).toEqual(found)
    expect(() => findProgram('tool', '/', { PATH: cwd })).toThrow(/no folder of the PATH/)
  })
})

describe('TypeScript', () => {
  const typescript: Script = { path: '/train.ts', language: 'typescript' }
  const old = { typescript: undefined, version: 'v20.19.0', nodeOptions: '' }

  it('needs no loader if Node strips types', () => {
    expect(loaderArguments(typescript, { ...old, typescript: 'strip' }, [])).toEqual([])
    expect(loaderArguments({ ...typescript, language: 'javascript' }, old, [])).toEqual([])
  })

  it.each([
    '--import tsx',
    '--import=tsx/esm',
    '-r ts-node/register',
    '--require @swc-node/register',
    '--import file:///home/me/node_modules/tsx/dist/loader.mjs',
    '--max-old-space-size=4096 --import @oxc-node/core/register',
  ])('uses the loader of the user: %s', (nodeOptions) => {
    const places = [join(cwd, 'any.js')]
    expect(loaderArguments(typescript, { ...old, nodeOptions }, places)).toEqual([])
  })

  it.each([
    '--import ./telemetry.mjs',
    '-r dotenv/config',
    '--import /home/tsx-team/settings.mjs',
    '--require /home/me/.pnp.cjs --experimental-loader file:///home/me/.pnp.loader.mjs',
  ])(
    'uses tsx, if installed, beside preloaded modules that are not for TypeScript: %s',
    (nodeOptions) => {
      const node = { ...old, nodeOptions }
      expect(loaderArguments(typescript, node, [join(cwd, 'any.js')])).toHaveLength(2)
      expect(loaderArguments(typescript, node, ['/nowhere/any.js'])).toEqual([])
    },
  )

  it('uses tsx from the first place that has it', () => {
    const places = ['/nowhere/any.js', join(cwd, 'any.js')]
    const loader = pathToFileURL(join(cwd, 'node_modules/tsx/loader.mjs')).href
    const [option, ours = ''] = loaderArguments(typescript, old, places)
    expect(option).toBe('--import')
    expect(new URL(ours).pathname).toMatch(/\/dist\/typescript-loader\.js$/)
    expect(new URL(ours).searchParams.get('tsx')).toBe(loader)
    expect(new URL(ours).searchParams.get('script')).toBe('/train.ts')
    const jsx: Script = { path: '/train.tsx', language: 'tsx' }
    const [, own = ''] = loaderArguments(jsx, { ...old, typescript: 'strip' }, places)
    expect(new URL(own).searchParams.get('script')).toBe('/train.tsx')
  })

  it('says what to do if there is no loader', () => {
    expect(() => loaderArguments(typescript, old, ['/nowhere/any.js'])).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_TYPESCRIPT_LOADER',
        message: expect.stringMatching(
          /Node v20\.19\.0 does not run TypeScript by itself.*npm install --save-dev tsx/,
        ),
      }),
    )
  })
})
