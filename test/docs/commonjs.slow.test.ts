import { readFileSync, rmSync, symlinkSync, writeFileSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { blocksOf } from './markdown.ts'
import { root, runShell } from './run.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-commonjs-'))
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
  writeFileSync(join(folder, 'package.json'), '{}')
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

it('the Jest test of docs/spawn.md passes in a CommonJS project', async () => {
  const page = 'docs/spawn.md'
  for (const { text } of blocksOf(page, readFileSync(join(root, page), 'utf8'))) {
    const name = /^\/\/ (\S+\.m?js)\n/.exec(text)?.[1]
    if (name !== undefined) writeFileSync(join(folder, name), text)
  }
  const line = 'NODE_OPTIONS=--experimental-vm-modules node_modules/.bin/jest'
  const { code, output } = await runShell(line, folder, 60_000)
  expect(output).toContain('1 passed')
  expect(code).toBe(0)
})

it.each([
  ['node16', 'ts', /TS1479/],
  ['nodenext', 'ts', /^$/],
  ['node16', 'mts', /^$/],
])(
  'TypeScript compiles an import in a CommonJS project: module %s, .%s',
  async (module, extension, said) => {
    writeFileSync(
      join(folder, `a.${extension}`),
      "import { initProcessGroup } from '@tsrun/distributed'\nvoid initProcessGroup()\n",
    )
    const options = `--module ${module} --target es2023 --strict --skipLibCheck --types node`
    const { output } = await runShell(
      `node_modules/.bin/tsc ${options} a.${extension} || true`,
      folder,
      60_000,
    )
    expect(output).toMatch(said)
  },
)
