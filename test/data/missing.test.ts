import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** Runs readExamples of the built @tsrun/training in a process in which a package is not installed. */
function readWithout(name: string) {
  const training = new URL('../../packages/training/dist/index.js', import.meta.url).href
  const path = fileURLToPath(new URL('fixtures/points.parquet', import.meta.url))
  const program = `
    const { readExamples } = await import('${training}')
    await readExamples(${JSON.stringify(path)}, { inputs: 'point' }).then(
      ({ size }) => console.log(size, 'examples'),
      ({ code, message }) => console.log(code, message),
    )`
  const hidden = new URL('../fixtures/without-package.mjs', import.meta.url).href
  const args = ['--import', hidden, '--input-type=module', '-e', program]
  const env = { ...process.env, WITHOUT: name }
  return spawnSync(process.execPath, args, { env, encoding: 'utf8' }).stdout
}

it('readExamples of @tsrun/training reads a file by @tsrun/data, or names the command that installs it', () => {
  expect(readWithout('nothing')).toBe('5 examples\n')
  expect(readWithout('@tsrun/data')).toMatch(
    /^ERR_TSR_PACKAGE_MISSING Reading examples from a file .*`npm install @tsrun\/data`/,
  )
})
