import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

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

/** Runs main.ts; says what it printed. */
function run(main = 'main.ts', temporary = folder): { lines: string[]; stderr: string } {
  const path = join(folder, main)
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ['--enable-source-maps', '--import', `${loader.href}&script=${path}`, path],
    { cwd: folder, encoding: 'utf8', env: { PATH: process.env['PATH'], TMPDIR: temporary } },
  )
  return { lines: stdout.trimEnd().split('\n'), stderr }
}

const module = '{ "type": "module" }'

describe('a program in TypeScript', () => {
  it('may have enums, and its errors show source lines', () => {
    put({
      'package.json': module,
      'main.ts': `
        import { Color, type Name } from './color.ts'
        import { shade } from './shade.mjs'
        const name: Name = 'green'
        console.log(Color[name], shade, (await import('./late.js')).late)
        throw new Error('here')
      `,
      'color.ts': `export type Name = keyof typeof Color\nexport enum Color { red, green }`,
      'shade.mts': `export const shade: string = 'dark'`,
      'late.ts': `export const late: number = 7`,
    })
    const { lines, stderr } = run()
    expect(lines).toEqual(['1 dark 7'])
    expect(stderr).toMatch(/Error: here\n\s+at .*main\.ts:6:15/)
  })

  it.each<[string, Record<string, string>]>([
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
  ])('may use what Node does not support: %s', (_, files) => {
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

it('leaves the variable TSX_TSCONFIG_PATH to the programs that a script starts as it was', () => {
  put({
    'package.json': module,
    'tsconfig.json': '{}',
    'main.ts': `console.log(process.env['TSX_TSCONFIG_PATH'] ?? 'none')`,
  })
  expect(run().lines).toEqual(['none'])
})
