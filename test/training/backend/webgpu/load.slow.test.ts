import { runModule } from '../support/process.ts'
import { vulkan } from '../support/vulkan.ts'
import { needing } from '../../../needs.ts'

const load = `await training.loadBackend('webgpu'); const { tf } = training\n`

/** Runs `script`, which logs JSON, on webgpu. */
async function results(script: string): Promise<unknown[]> {
  const { code, stdout, stderr } = await runModule(load + script, vulkan)
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown)
}

const { describe: describeWithDriver } = needing(vulkan !== undefined, 'Vulkan driver')

describeWithDriver('webgpu', () => {
  it('uses the adapter that a variable or an option names in part, and reports its name', async () => {
    const script = `
      const one = await training.loadBackend()
      const two = await training.loadBackend('webgpu', { adapter: 'ignored: it is open' })
      console.log(JSON.stringify([one, two, training.tf.getBackend(), typeof navigator]))`
    const env = { ...vulkan, TSRUN_BACKEND: 'webgpu', TSRUN_WEBGPU_ADAPTER: 'Voodoo 2' }
    const { stderr } = await runModule(`await training.loadBackend()`, env)
    const names = /there are: (.+)\. Choose/.exec(stderr)![1]!.split(', ')
    const part = names[0]!.toUpperCase().slice(0, -1)
    const { stdout } = await runModule(script, { ...env, TSRUN_WEBGPU_ADAPTER: part })
    const backend = { name: 'webgpu', device: names[0], threads: 1 }
    const navigator = Number(process.versions.node.split('.')[0]) < 21 ? 'undefined' : 'object'
    expect(JSON.parse(stdout)).toEqual([backend, backend, 'webgpu', navigator])
  })

  it('lists the adapters if no adapter matches', async () => {
    const { code, stderr } = await runModule(
      `await training.loadBackend('webgpu', { adapter: 'Voodoo 2' })`,
      vulkan,
    )
    expect(code).toBe(1)
    expect(stderr).toMatch(/no adapter fits 'Voodoo 2' \(TSRUN_WEBGPU_ADAPTER\); there are: \w+/)
    expect(stderr).toContain('ERR_TSR_BACKEND')
  })

  it('multiplies like the cpu backend', async () => {
    const [device, host] = (await results(`
      for (const name of ['webgpu', 'cpu']) {
        await training.loadBackend(name)
        const a = tf.randomUniform([33, 70], -1, 1, 'float32', 1)
        const b = tf.randomUniform([19, 70], -1, 1, 'float32', 2)
        console.log(JSON.stringify([...(await tf.matMul(a, b, false, true).data())]))
      }`)) as [number[], number[]]
    expect(device).toHaveLength(33 * 19)
    device.forEach((value, i) => {
      expect(Math.abs(value - host[i]!)).toBeLessThan(1e-5)
    })
  })

  it('refuses synchronous reads, and finishes reads of tensors disposed meanwhile', async () => {
    const [code, first, ...left] = await results(`
      const y = tf.matMul(tf.ones([8, 8]), tf.ones([8, 8]))
      try { y.dataSync() } catch (error) { console.log(JSON.stringify(error.code)) }
      const values = y.data()
      y.dispose()
      console.log((await values)[63])`)
    expect([code, first, left]).toEqual(['ERR_TSR_SYNC_READ', 8, []])
  })

  it('throws errors of the device at the next read', async () => {
    const { stdout } = await runModule(
      `${load}
      const sum = tf.add(tf.zeros([2 ** 30]), 1)
      await sum.data().catch(({ code }) => console.log(code))`,
      vulkan,
    )
    // Dawn prints what it thinks of it, too
    expect(stdout).toMatch(/^ERR_TSR_BACKEND$/m)
  })

  it.each([
    [
      'at the end of the script',
      `process.exitCode = 3; read.then(() => console.log('8'))`,
      3,
      '8\n',
    ],
    ['by process.exit during a read', 'process.exit(5)', 5, ''],
    ['by an error during a read', `throw new Error('boom')`, 1, ''],
    ['by a signal', `process.kill(process.pid, 'SIGTERM'); await read`, null, ''],
  ])('ends a process cleanly: %s', async (_, end, code, stdout) => {
    const script = `
      const { setFlagsFromString } = await import('node:v8')
      setFlagsFromString('--expose-gc')
      const gc = (await import('node:vm')).runInNewContext('gc')
      for (let i = 0; i < 5; i++) { await tf.matMul(tf.ones([8, 8]), tf.ones([8, 8])).data(); gc() }
      const read = tf.matMul(tf.ones([8, 8]), tf.ones([8, 8])).data()
      ${end}`
    const ended = await runModule(load + script, vulkan)
    expect(ended).toMatchObject({ code, stdout, signal: code === null ? 'SIGTERM' : null })
  })
})

describe('webgpu without its packages or a driver', () => {
  const { it: linux } = needing(process.platform === 'linux', 'Linux')
  linux('reports that a driver is missing', async () => {
    const env = { VK_ICD_FILENAMES: '/nowhere', VK_DRIVER_FILES: '/nowhere' }
    const { code, stderr } = await runModule(load, env)
    expect(code).toBe(1)
    expect(stderr).toContain('no adapter was found; install a Vulkan driver')
    expect(stderr).toContain('ERR_TSR_BACKEND')
  })

  it('names the packages to install', async () => {
    const hook = `
      export async function resolve(name, context, next) {
        if (name === 'webgpu') throw Object.assign(new Error(), { code: 'ERR_MODULE_NOT_FOUND' })
        return next(name, context)
      }`
    const { code, stderr } = await runModule(
      `(await import('node:module')).register('data:text/javascript,' + encodeURIComponent(${JSON.stringify(hook)}))\n${load}`,
    )
    expect(code).toBe(1)
    expect(stderr).toContain('npm install webgpu @tensorflow/tfjs-backend-webgpu@4.22.0')
  })
})
