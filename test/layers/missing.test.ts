import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

it('a trainer of a tf.layers model names the command that installs a missing @tsrun/layers', () => {
  const training = new URL('../../packages/training/dist/index.js', import.meta.url).href
  const hooks = `export async function resolve(name, context, next) {
    if (name !== '@tsrun/layers') return await next(name, context)
    throw Object.assign(new Error('missing'), { code: 'ERR_MODULE_NOT_FOUND' })
  }`
  const program = `import { register } from 'node:module'
    import * as tfjs from '@tensorflow/tfjs'
    register('data:text/javascript,' + encodeURIComponent(${JSON.stringify(hooks)}))
    const { trainer } = await import('${training}')
    const model = tfjs.sequential({ layers: [tfjs.layers.dense({ units: 1, inputShape: [1] })] })
    await trainer(model).catch(({ code, message }) => console.log(code, message))
    process.exit()`
  const cwd = fileURLToPath(new URL('.', import.meta.url))
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    cwd,
    encoding: 'utf8',
  })
  expect(stdout).toMatch(
    /^ERR_TSR_PACKAGE_MISSING Training a model of tf\.layers .*`npm install @tsrun\/layers`/m,
  )
})
