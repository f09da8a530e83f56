import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { loadBackend, tf } from '@tsrun/training'

// processes take long to start when the cores are loaded

const entry = fileURLToPath(new URL('../../../packages/training/dist/index.js', import.meta.url))

/** Runs a module in a process of its own. */
function run(script: string, env: Record<string, string> = {}) {
  const source = `import { loadBackend, tf, record } from ${JSON.stringify(entry)}\n${script}`
  const flags = ['--input-type=module', '-e', source]
  return promisify(execFile)(process.execPath, flags, {
    env: { ...process.env, ...env, NODE_OPTIONS: '' },
  })
}

describe('loadBackend', () => {
  it('loads wasm by default', async () => {
    expect(await loadBackend('auto')).toEqual({ name: 'wasm', device: 'CPU', threads: 1 })
    expect(tf.getBackend()).toBe('wasm')
  })

  it('switches to another backend and back', async () => {
    await loadBackend('cpu')
    expect(tf.getBackend()).toBe('cpu')
    expect(await tf.square(tf.scalar(3)).data()).toEqual(Float32Array.of(9))
    await loadBackend('wasm')
    expect(tf.getBackend()).toBe('wasm')
    expect(await tf.square(tf.scalar(4)).data()).toEqual(Float32Array.of(16))
  })

  it.each(['wasm', 'cpu'])(
    'loads the gradients and tensor methods of TensorFlow.js with %s, before anything is recorded',
    async (backend) => {
      const { stdout } = await run(`
        await loadBackend('${backend}')
        const x = tf.tensor1d([2, 3])
        const sum = (x) => tf.einsum('i,i->', x, x)
        const show = (tensor) => console.log([...tensor.dataSync()].join(' '))
        show(tf.grad((x) => tf.square(x))(x))
        show(tf.grad(sum)(x))
        const weight = tf.variable(x)
        show(tf.variableGrads(() => sum(weight)).grads[weight.name])
        show(x.add(x))
      `)
      expect(stdout).toBe('4 6\n4 6\n4 6\n4 6\n')
    },
  )

  it.each(['wasm', 'cpu'])(
    'corrects the gradients of TensorFlow.js with %s also after an import of @tensorflow/tfjs',
    async (backend) => {
      const { stdout } = await run(`
        await loadBackend('${backend}')
        await import('@tensorflow/tfjs')
        await loadBackend('${backend}')
        const mean = tf.grad((x) => tf.avgPool(x, 3, 1, 'same'))(tf.ones([1, 3, 3, 1]))
        console.log(mean.dataSync()[0].toFixed(4))
        const resize = (x) => tf.image.resizeNearestNeighbor(x, [1, 2], false, true)
        console.log([...tf.grad(resize)(tf.ones([1, 1, 3, 1])).dataSync()].join(' '))
      `)
      expect(stdout).toMatch(/0\.6944\n1 0 1\n$/)
    },
  )

  it('records the corrected gradients also after an import of @tensorflow/tfjs between two recordings', async () => {
    const { stdout } = await run(`
      await loadBackend('wasm')
      const resize = (x) => tf.image.resizeNearestNeighbor(x, [1, 2], false, true)
      const show = () => {
        const pass = record(resize, tf.ones([1, 1, 3, 1]), [], { needsInputGradient: true })
        console.log([...pass.backward(tf.ones([1, 1, 2, 1]), () => undefined).dataSync()].join(' '))
      }
      show()
      await import('@tensorflow/tfjs')
      show()
    `)
    expect(stdout).toMatch(/1 0 1\n1 0 1\n$/)
  })

  it('refuses an unknown name and lists the known ones', async () => {
    await expect(loadBackend('cuda' as 'cpu')).rejects.toMatchObject({
      code: 'ERR_TSR_ARGUMENT',
      message: expect.stringContaining('"auto", "tensorflow", "webgpu", "wasm", "cpu"') as string,
    })
    await expect(loadBackend('toString' as 'cpu')).rejects.toMatchObject({
      code: 'ERR_TSR_ARGUMENT',
    })
  })

  it.each(['wasm', 'cpu'])(
    'loads the backend %s that TSRUN_BACKEND names, and prints nothing',
    async (name) => {
      const { stdout, stderr } = await run(
        `await loadBackend(); tf.square(tf.scalar(3)).dataSync(); process.stdout.write(tf.getBackend())`,
        { TSRUN_BACKEND: name },
      )
      expect(stdout).toBe(name)
      expect(stderr).toBe('')
    },
  )

  it('shares the engine and the gradients with a script that imports TensorFlow.js itself', async () => {
    const { stdout } = await run(`
      await loadBackend('wasm')
      const umbrella = await import('@tensorflow/tfjs')
      const [g] = umbrella.grads((x) => umbrella.square(x))([tf.scalar(3)])
      process.stdout.write(String(umbrella.engine() === tf.engine()) + g.dataSync()[0] + umbrella.getBackend())
    `)
    expect(stdout).toBe('true6wasm')
  })

  it('moves tensors between backends', async () => {
    await loadBackend('cpu')
    const x = tf.tensor1d([2, 3])
    const before = tf.memory().numDataBuffers
    await loadBackend('wasm')
    expect(tf.square(x).dataSync()).toEqual(Float32Array.of(4, 9))
    await loadBackend('cpu')
    expect(tf.square(x).dataSync()).toEqual(Float32Array.of(4, 9))
    expect(tf.memory().numDataBuffers).toBe(before + 2)
    x.dispose()
    expect(tf.memory().numDataBuffers).toBe(before + 1)
    await loadBackend('wasm')
  })
})
