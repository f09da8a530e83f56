import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildSync } from 'esbuild'
import { root } from '../docs/run.ts'
import { cleanEnvironment } from '../launcher/support/tsrun.ts'

const folder = mkdtempSync(join(tmpdir(), 'tsrun-bundled-'))
afterAll(() => {
  rmSync(folder, { recursive: true })
})

it.each([
  ['initProcessGroup', '', '@tsrun/distributed', 'esm'],
  ['initProcessGroup', '', '@tsrun/distributed', 'cjs'],
  ['loadBackend', '', '@tsrun/training', 'esm'],
  ['loadBackend', '', '@tsrun/training', 'cjs'],
  ['spawn', '() => 0', '@tsrun/launcher', 'esm'],
  ['spawn', '() => 0', '@tsrun/launcher', 'cjs'],
] as const)(
  'a bundle with %s(%s) of %s says what to keep outside (%s)',
  (name, given, from, format) => {
    const outfile = join(folder, `${name}.${format === 'esm' ? 'mjs' : 'cjs'}`)
    const contents = `import { ${name} } from '${from}'\n${name}(${given})`
    const stdin = { contents, resolveDir: root }
    buildSync({ stdin, outfile, format, bundle: true, platform: 'node', logLevel: 'silent' })
    const options = { cwd: folder, env: cleanEnvironment(), encoding: 'utf8' } as const
    const { status, stderr } = spawnSync(process.execPath, [outfile], options)
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: expect.stringMatching(/If your program is a bundle, keep @tsrun\/\* outside of it/),
    })
  },
)
