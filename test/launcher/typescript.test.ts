import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { findUp, readSettings } from '../internals/launcher/job.ts'

const root = new URL('../../', import.meta.url)
const loader = new URL('packages/launcher/dist/typescript-loader.js', root)
loader.searchParams.set('tsx', pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href)

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-typescript-test-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

function put(files: Readonly<Record<string, string>>): void {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true })
    writeFileSync(join(folder, name), text)
  }
}

/** Runs main.ts; says what it printed and which files are in the cache. */
function run(
  main = 'main.ts',
  temporary = folder,
): { lines: string[]; stderr: string; cached: string[] } {
  const path = join(folder, main)
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ['--enable-source-maps', '--import', `${loader.href}&script=${path}`, path],
    { cwd: folder, encoding: 'utf8', env: { PATH: process.env['PATH'], TMPDIR: temporary } },
  )
  const caches = readdirSync(folder).filter((name) => name.startsWith('tsrun-typescript-'))
  const cached = caches.flatMap((name) => readdirSync(join(folder, name)))
  return { lines: stdout.trimEnd().split('\n'), stderr, cached }
}

const module = '{ "type": "module" }'

describe('a program in TypeScript', () => {
  it('is compiled once, including enums, and its errors show source lines', () => {
    put({
      'package.json': module,
      'main.ts': `
        import { Color, type Name } from './color.ts'
        import { shade } from './shade.mts'
        const name: Name = 'green'
        console.log(Color[name], shade, (await import('./late.ts')).late)
        throw new Error('here')
      `,
      'color.ts': `export type Name = keyof typeof Color\nexport enum Color { red, green }`,
      'shade.mts': `export const shade: string = 'dark'`,
      'late.ts': `export const late: number = 7`,
    })
    const first = run()
    expect(first.lines).toEqual(['1 dark 7'])
    expect(first.stderr).toMatch(/Error: here\n\s+at .*main\.ts:6:15/)
    expect(first.cached).toHaveLength(4)
    const second = run()
    expect(second.lines).toEqual(first.lines)
    expect(second.cached).toEqual(first.cached)
  })

  it.each<[string, Record<string, string>]>([
    [
      'imports of compiled modules',
      { 'main.ts': `import './a.js'`, 'a.ts': `console.log('good')` },
    ],
    ['imports without an extension', { 'main.ts': `import './a'`, 'a.ts': `console.log('good')` }],
    ['imports of folders', { 'main.ts': `import './a'`, 'a/index.ts': `console.log('good')` }],
    [
      'path aliases',
      {
        'main.ts': `import '~/a.ts'`,
        'lib/a.ts': `console.log('good')`,
        'tsconfig.json': `{ "compilerOptions": { /* ours */ "paths": { "~/*": ["./lib/*"] } } }`,
      },
    ],
    [
      'JSON',
      {
        'main.ts': `import { word } from './a.json'; console.log(word)`,
        'a.json': `{ "word": "good" }`,
      },
    ],
    [
      'CommonJS',
      {
        'main.ts': `import { word } from './a.cts'; console.log(word)`,
        'a.cts': `import b = require('./b.cts'); export const word: string = b.word`,
        'b.cts': `export const word: string = 'good'`,
      },
    ],
    [
      'require of TypeScript',
      {
        'main.ts': `import { createRequire } from 'node:module'
          createRequire(import.meta.url)('./a.cts')`,
        'a.cts': `const word: string = 'good'; console.log(word)`,
      },
    ],
  ])('may use features that only tsx supports: %s', (_, files) => {
    put({ 'package.json': module, ...files })
    expect(run()).toMatchObject({ lines: ['good'], stderr: '' })
  })

  it('may consist of CommonJS only', () => {
    put({
      'main.ts': `import { word } from './a'\nconsole.log(word)`,
      'a.ts': `export const word: string = 'good'`,
    })
    expect(run()).toMatchObject({ lines: ['good'], stderr: '' })
  })

  it('has the path aliases of its own package below the current folder', () => {
    put({
      'tsconfig.json': '{}',
      'packages/app/package.json': module,
      'packages/app/tsconfig.json': `{ "compilerOptions": { "paths": { "~/*": ["./lib/*"] } } }`,
      'packages/app/main.ts': `import '~/a.ts'`,
      'packages/app/lib/a.ts': `console.log('good')`,
    })
    expect(run('packages/app/main.ts')).toMatchObject({ lines: ['good'], stderr: '' })
  })

  it('in JSX has the settings of its own package below the current folder', () => {
    put({
      'tsconfig.json': '{}',
      'packages/app/package.json': module,
      'packages/app/tsconfig.json': `{ "compilerOptions": { "jsxFactory": "good" } }`,
      'packages/app/main.tsx': `const good = (name: string) => name; console.log(<a />)`,
    })
    expect(run('packages/app/main.tsx')).toMatchObject({ lines: ['a'], stderr: '' })
  })

  // Not even root can make tsx's cache in a file.
  it.each(['a.ts', '/nowhere'])('that needs tsx runs with the TMPDIR %s', (temporary) => {
    put({ 'package.json': module, 'main.ts': `import './a'`, 'a.ts': `console.log('good')` })
    expect(run('main.ts', resolve(folder, temporary))).toMatchObject({
      lines: ['good'],
      stderr: '',
    })
  })

  it('that imports a missing package shows the error of Node', () => {
    put({ 'package.json': module, 'main.ts': `import 'no-such-package'` })
    expect(run().stderr).toMatch(/ERR_MODULE_NOT_FOUND/)
  })
})

describe('the settings of tsconfig.json', () => {
  it.each<[string, string, object | undefined]>([
    ['an empty object', '{}', { verbatimModuleSyntax: false }],
    ['comments and commas', '{ "files": [], // none\n }', { verbatimModuleSyntax: false }],
    ['a base', '{ "extends": "./base.json" }', { verbatimModuleSyntax: true }],
    ['decorators', '{ "compilerOptions": { "experimentalDecorators": true } }', undefined],
    ['class fields of an old target', '{ "compilerOptions": { "target": "es2020" } }', undefined],
    ['a missing base', '{ "extends": "nobody/base" }', undefined],
  ])('are read, or leave the program to tsx: %s', (_, text, expected) => {
    const base = '{ "compilerOptions": { "target": "ES2023", "verbatimModuleSyntax": true } }'
    put({ 'tsconfig.json': text, 'base.json': base, 'src/a.ts': '' })
    expect(readSettings(findUp('tsconfig.json', join(folder, 'src')), {})).toEqual(expected)
  })
})
