import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

it('a trainer of a tf.layers model names the command that installs a missing @tsrun/layers', () => {
  const training = new URL('../../packages/training/dist/index.js', import.meta.url).href
  const program = `import * as tfjs from '@tensorflow/tfjs'
    const { trainer } = await import('${training}')
    const model = tfjs.sequential({ layers: [tfjs.layers.dense({ units: 1, inputShape: [1] })] })
    await trainer(model).catch(({ code, message }) => console.log(code, message))
    process.exit()`
  const hidden = new URL('../fixtures/without-package.mjs', import.meta.url).href
  const args = ['--import', hidden, '--input-type=module', '-e', program]
  const { stdout } = spawnSync(process.execPath, args, {
    cwd: fileURLToPath(new URL('.', import.meta.url)),
    env: { ...process.env, WITHOUT: '@tsrun/layers' },
    encoding: 'utf8',
  })
  expect(stdout).toMatch(
    /^ERR_TSR_PACKAGE_MISSING Training a model of tf\.layers .*`npm install @tsrun\/layers`/m,
  )
})
