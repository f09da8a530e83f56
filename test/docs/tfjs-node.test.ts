import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { transformSync } from 'esbuild'
import { blocks } from './programs.ts'
import { root, runShell, withProject } from './run.ts'

it('docs/tfjs.md shows a program that loads what tsrun setup tensorflow has installed', async () => {
  const shown = blocks.filter(
    ({ where, language }) => where.startsWith('docs/tfjs.md') && language === 'ts',
  )
  expect(shown).toHaveLength(1)
  const { code } = transformSync(shown[0]!.text, { loader: 'ts', format: 'esm' })
  const name = '@tensorflow/tfjs-node'
  const installed = `home/tensorflow/build/node_modules/${name}`
  const files = {
    'program.js': code,
    [`${installed}/package.json`]: '{ "main": "index.cjs" }',
    [`${installed}/index.cjs`]: readFileSync(
      join(root, 'test/fixtures/docs/tfjs-node.cjs'),
      'utf8',
    ),
  }
  const ran = await withProject(files, (folder) => {
    const home = join(folder, 'home')
    const manifest = { package: name, folder: join(home, 'tensorflow/build') }
    writeFileSync(join(home, 'tensorflow/manifest.json'), JSON.stringify(manifest))
    return runShell(`TSRUN_HOME=${home} node program.js`, folder, 60_000)
  })
  expect(ran).toEqual({ code: 0, output: 'tensorflow\n' })
})
