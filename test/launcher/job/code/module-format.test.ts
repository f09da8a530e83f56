import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { refuseModuleSyntax, findScript } from '../../../internals/launcher/job.ts'
import { killLeftovers, tsrun } from '../../support/tsrun.ts'
import { needing } from '../../../needs.ts'

const { resolve } = createRequire(import.meta.url)
/** This Node removes types itself; else tsx runs TypeScript. */
const isNative = Boolean((process.features as { typescript?: unknown }).typescript)
const tsx = resolve('tsx')

const sources = {
  import: "import { hostname } from 'node:os'\nhostname()\n",
  export: '\nexport const one = 1\n',
  meta: 'console.log(import.meta.url)\n',
  await: '// one\nconst one = await Promise.resolve(1)\n',
  common:
    "#!/usr/bin/env node\nconst { hostname } = require('node:os')\nvoid (async () => { await hostname() })()\n",
  broken: 'const one = ]\n',
}

let folder = ''
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-format-'))
  for (const type of ['none', 'commonjs', 'module']) {
    mkdirSync(join(folder, type))
    const manifest = type === 'none' ? {} : { type }
    writeFileSync(join(folder, type, 'package.json'), JSON.stringify(manifest))
    for (const [name, source] of Object.entries(sources)) {
      for (const extension of ['js', 'cjs', 'mjs', 'ts', 'cts', 'mts'])
        writeFileSync(join(folder, type, `${name}.${extension}`), source)
    }
  }
})
afterAll(() => {
  rmSync(folder, { recursive: true })
})
afterEach(killLeftovers)

interface Options {
  readonly hasLoader?: boolean
  readonly withTsx?: boolean
}

/** What is said about a script; undefined where it is left alone. */
function refusal(script: string, options: Options = {}): string | undefined {
  const { hasLoader = false, withTsx = false } = options
  const context = { hasLoader, tsx: withTsx ? tsx : undefined }
  try {
    refuseModuleSyntax(findScript(script, folder), context)
    return undefined
  } catch (error) {
    expect(error).toMatchObject({ code: 'ERR_TSR_COMMONJS' })
    return (error as Error).message.replaceAll(folder, '')
  }
}

describe('a script with the syntax of ES modules that Node reads as CommonJS', () => {
  it.each([
    [
      'commonjs/import.js',
      'import.js: its line 1 has `import`',
      '/commonjs/package.json says "type": "commonjs"',
    ],
    ['commonjs/export.js', 'export.js: its line 2 has `export`', 'says "type": "commonjs"'],
    ['commonjs/meta.js', 'its line 1 has `import.meta`', 'says "type": "commonjs"'],
    ['commonjs/await.js', 'its line 2 has a top-level `await`', 'says "type": "commonjs"'],
    ['module/await.cjs', 'its line 2 has a top-level `await`', '.cjs stands for CommonJS'],
    ['none/import.cjs', 'its line 1 has `import`', '.cjs stands for CommonJS'],
  ])('(%s) is refused with its line and the reason', (script, where, reason) => {
    const said = refusal(script)
    expect(said).toContain(where)
    expect(said).toContain(reason)
    expect(said).toContain('npm pkg set type=module')
  })

  it('is refused if tsx runs it, but only for a top-level await', () => {
    const withTsx = true
    const none = '/none/package.json does not say "type": "module"'
    expect(refusal('none/await.ts', { withTsx })).toContain(
      `line 2 has a top-level \`await\`, which is for ES modules, but ${none}`,
    )
    expect(refusal('commonjs/await.ts', { withTsx })).toContain('says "type": "commonjs"')
    expect(refusal('module/await.cts', { withTsx })).toContain('.cts stands for CommonJS')
    for (const script of ['none/import.ts', 'commonjs/export.ts', 'none/import.cts'])
      expect([script, refusal(script, { withTsx })]).toEqual([script, undefined])
  })

  const { it: itNative } = needing(isNative, 'Node that removes the types')
  itNative('is refused if Node strips its types', () => {
    expect(refusal('commonjs/import.ts')).toContain('line 1 has `import`')
    expect(refusal('none/await.cts')).toContain('line 2 has a top-level `await`')
  })

  it('is reported once, in one line, before any rank starts', async () => {
    const { code, stdout, stderr } = await tsrun(['--nproc', '3', 'commonjs/await.ts'], {
      cwd: folder,
    })
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toMatch(
      /^tsrun: Cannot run await\.ts: its line 2 has a top-level `await`.*\(ERR_TSR_COMMONJS\)\n$/,
    )
  })
})

describe('a script', () => {
  it.each([
    'module/await.js',
    'module/import.ts',
    'commonjs/await.mjs',
    'commonjs/await.mts',
    // Node itself detects the format from the syntax where nothing says what it is.
    'none/await.js',
    'none/import.js',
    'none/await.ts',
    'commonjs/common.js',
    'none/common.cjs',
    // Node shows the line of any other error.
    'commonjs/broken.js',
    'commonjs/broken.ts',
  ])('is accepted: %s', (script) => {
    expect(refusal(script)).toBeUndefined()
  })

  it('is accepted if the user has a loader', () => {
    expect(refusal('commonjs/await.js', { hasLoader: true })).toBeUndefined()
  })
})

it('only one rank of a host may print the warning of Node about a script without a module type', async () => {
  const { stdout } = await tsrun(['--dry-run', '--nproc', '3', join(folder, 'none/common.js')])
  const isSilent = stdout
    .split('\n\n')
    .map((rank) => rank.includes('--disable-warning=MODULE_TYPELESS_PACKAGE_JSON'))
  expect(isSilent).toEqual([false, true, true])
})
