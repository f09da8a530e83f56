import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { jest } from '@jest/globals'
import { readTensorFlowManifest, thisSystem } from '@tsrun/core'
import { hasKernels, tensorflow } from './support/tensorflow.ts'

jest.setTimeout(60_000)
const tsx = import.meta.resolve('tsx')
const entry = fileURLToPath(new URL('../../../packages/training/src/index.ts', import.meta.url))

/** Runs a module in a process of its own. */
function run(script: string, env: Record<string, string>) {
  const source = `import { loadBackend, record, tf } from ${JSON.stringify(entry)}\n${script}`
  const flags = ['--import', tsx, '--conditions=@tsrun/source', '--input-type=module', '-e', source]
  return promisify(execFile)(process.execPath, flags, {
    env: { ...process.env, TSRUN_LOG_LEVEL: 'info', ...env, NODE_OPTIONS: '' },
  })
}

/** Prints the name of the backend, or the error with which it was refused. */
const load = `
  const print = (text) => process.stdout.write(String(text))
  await loadBackend().then(({ name }) => print(name), ({ code, message }) => print(code + ' ' + message))
`

let home: string
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'tsrun-home-'))
})
afterEach(() => {
  rmSync(home, { recursive: true })
})

/** Writes a manifest of a set-up whose package is this program. */
function setUp(program: string, facts: object = {}): void {
  const name = '@tensorflow/tfjs-node'
  const folder = join(home, 'files')
  mkdirSync(join(folder, 'node_modules', name), { recursive: true })
  writeFileSync(join(folder, 'node_modules', name, 'index.js'), program)
  for (const umbrella of ['tfjs', 'tfjs-core']) {
    mkdirSync(join(folder, 'node_modules/@tensorflow', umbrella))
    writeFileSync(join(folder, 'node_modules/@tensorflow', umbrella, 'index.js'), '')
  }
  const manifest = { format: 1, request: {}, package: name, folder, libraryFolders: [], ...facts }
  mkdirSync(join(home, 'tensorflow'))
  const text = JSON.stringify({ system: thisSystem, devices: [], ...manifest })
  writeFileSync(join(home, 'tensorflow/manifest.json'), text)
}

describe('the backend tensorflow, where it is not set up', () => {
  it('is refused when it is asked for, with what to do', async () => {
    const { stdout } = await run(load, { TSRUN_HOME: home, TSRUN_BACKEND: 'tensorflow' })
    expect(stdout).toMatch(/^ERR_TSR_BACKEND .* it is not set up: run `npx tsrun setup tensorflow`/)
  })

  it('leaves auto to wasm, and one line says which, on what', async () => {
    const { stdout, stderr } = await run(load, { TSRUN_HOME: home, TSRUN_BACKEND: 'auto' })
    expect(stdout).toBe('wasm')
    expect(
      stderr
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as object),
    ).toEqual([
      expect.objectContaining({
        backend: 'wasm',
        device: 'CPU',
        threads: 1,
        msg: 'tensors are computed by wasm on CPU, 1 thread',
      }),
    ])
  })
})

describe('the backend tensorflow, where its set-up does not work', () => {
  it.each([
    ['binding is broken', 'throw new Error("libtensorflow_cc.so.2: no such file\\nmore")', {}],
    ['package is gone', '', { folder: '/nowhere' }],
    ['system is another one', '', { system: 'plan9-mips' }],
    ['format is unknown', '', { format: 7 }],
  ])('is refused when its %s, and auto says why it takes wasm', async (_, program, facts) => {
    setUp(program, facts)
    const asked = { TSRUN_HOME: home, TSRUN_BACKEND: 'tensorflow' }
    const { stdout, stderr } = await run(
      `${load}\nprint('; ' + (await loadBackend('auto')).name)`,
      asked,
    )
    expect(stdout).toMatch(/^ERR_TSR_BACKEND .*`npx tsrun setup tensorflow`.*; wasm$/s)
    expect(stderr).toContain('TensorFlow is set up but cannot be used: taking wasm')
  })

  it('is refused when it is for GPUs and finds none, unless they are hidden', async () => {
    const name = '@tensorflow/tfjs-node-gpu'
    setUp('')
    const backend = `
      const tf = require('@tensorflow/tfjs')
      const cpu = tf.findBackendFactory('cpu')
      for (const kernelName of ['_FusedMatMul', 'Step']) {
        tf.registerKernel({ kernelName, backendName: 'tensorflow', kernelFunc() {} })
      }
      tf.registerBackend('tensorflow', () => Object.assign(cpu(), { isUsingGpuDevice: false }), 3)`
    mkdirSync(join(home, 'files/node_modules', name))
    writeFileSync(join(home, 'files/node_modules', name, 'index.js'), backend)
    const manifest = JSON.parse(
      JSON.stringify(readTensorFlowManifest({ TSRUN_HOME: home })),
    ) as object
    writeFileSync(
      join(home, 'tensorflow/manifest.json'),
      JSON.stringify({ ...manifest, package: name }),
    )
    const asked = { TSRUN_HOME: home, TSRUN_BACKEND: 'tensorflow' }
    expect((await run(load, asked)).stdout).toMatch(
      /^ERR_TSR_BACKEND .*it is set up for GPUs and finds none.*nvidia-smi/,
    )
    expect((await run(load, { ...asked, CUDA_VISIBLE_DEVICES: '' })).stdout).toBe('tensorflow')
    expect((await run(load, { ...asked, TSRUN_BACKEND: 'auto' })).stdout).toBe('wasm')
  })
})

describe('the backend tensorflow, where it is set up', () => {
  const env = { ...tensorflow, TSRUN_BACKEND: 'tensorflow' }
  if (tensorflow === undefined) {
    it('skipped: TensorFlow is not set up (npx tsrun setup tensorflow)', () => {
      expect(tensorflow).toBeUndefined()
    })
    return
  }

  it('shares the engine and the gradients of a script that imports TensorFlow.js itself', async () => {
    const { stdout } = await run(
      `${load}
       const umbrella = await import('@tensorflow/tfjs')
       const [g] = umbrella.grads((x) => umbrella.square(x))([tf.scalar(3)])
       print([umbrella.engine() === tf.engine(), g.dataSync()[0], umbrella.getBackend()])`,
      env,
    )
    expect(stdout).toBe('tensorflowtrue,6,tensorflow')
  })

  it('runs the operations that need what Node 23 took away', async () => {
    const { stdout } = await run(
      `const util = (await import('node:util')).default
       for (const name of ['isNullOrUndefined', 'isUndefined', 'isArray']) delete util[name]
       ${load}
       const { values, indices } = tf.topk(tf.tensor1d([1, 5, 3]), 2)
       print([values.dataSync(), indices.dataSync(), tf.cast(tf.scalar(2.5), 'int32').dataSync()])`,
      env,
    )
    expect(stdout).toBe('tensorflow5,3,1,2,2')
  })

  it('tells positive values from others, NaN from both, as the gradient of relu needs it', async () => {
    const { stdout } = await run(
      `${load}
       print(tf.step(tf.tensor1d([-2, -0, 0, 1e-30, 3, NaN])).dataSync())
       print('; ' + tf.step(tf.tensor1d([-2, 3]), 0.5).dataSync())
       const x = tf.scalar(1)
       const { numTensors } = tf.memory()
       tf.step(x).dispose()
       print('; ' + (tf.memory().numTensors - numTensors))`,
      env,
    )
    expect(stdout).toBe('tensorflow0,0,0,1,1,NaN; 0.5,1; 0')
  })

  it('counts its threads as the variable says, in the line that it logs', async () => {
    const { stderr } = await run(load, { ...env, TF_NUM_INTRAOP_THREADS: '3' })
    expect(stderr).toMatch(/tensors are computed by tensorflow on .+, 3 threads/)
  })

  it('multiplies fused with bias and relu, as the modules call it', async () => {
    const { stdout } = await run(
      `${load}
       const info = ({ dataId, dtype }, shape) => ({ dataId, dtype, shape })
       const [a, b] = [tf.tensor2d([[1], [2]]), tf.tensor2d([[3, 4]])]
       for (const activation of ['linear', 'relu']) {
         const inputs = { a: info(a, [1, 2, 1]), b: info(b, [1, 1, 2]), bias: tf.tensor1d([-5, 1]) }
         const attrs = { transposeA: false, transposeB: false, activation }
         print(' ' + tf.engine().runKernel('_FusedMatMul', inputs, attrs).dataSync())
       }`,
      env,
    )
    expect(stdout).toBe('tensorflow -2,5,1,9 0,5,1,9')
  })

  it.each([
    ['a kernel for each pass', ''],
    [
      'an operation after the other',
      "Object.defineProperty(tf.backend().binding, 'kernels', { value: undefined })",
    ],
  ])(
    'takes linear layers and their loss through it by %s: the gradients of the tape',
    async (_, before) => {
      const { stdout } = await run(`await loadBackend()\n${before}\n${passes}`, env)
      const found = JSON.parse(stdout) as Record<'worst' | 'sums', number>
      expect(found).toMatchObject({ halvesDiffer: 0, cloneDiffers: 0, left: 0 })
      expect(found.worst).toBeLessThan(1e-5)
      expect(found.sums).toBeLessThan(1e-5)
      expect('inPlace' in found).toBe(before === '' && hasKernels)
    },
  )
})

/** Compares gradients, and counts the tensors of TensorFlow that are left when all is freed. */
const passes = `
  import { crossEntropy, recordLoss, recordModule, ShardedMLP, SGD, sumInto } from ${JSON.stringify(entry)}
  const backend = tf.backend()
  let left = 0
  let inPlace
  const counted = ([name, change]) => {
    const stock = backend.binding[name].bind(backend.binding)
    const value = (...args) => {
      const out = stock(...args)
      left += change(out)
      return out
    }
    return [name, { value }]
  }
  const counts = [['executeOp', (out) => out.length], ['createTensor', () => 1], ['deleteTensor', () => -1]]
  const kernels = Object.entries(backend.binding.kernels ?? {}).map(([name, kernel]) => [name, (...args) => {
    const out = kernel(...args)
    left += out?.length ?? 0
    // the gradient of the input alone: those of the parameters are in the sums
    if (name === 'linearBackward' && out.length === 1) inPlace = true
    return out
  }])
  backend.binding = Object.create(backend.binding, {
    ...Object.fromEntries(counts.map(counted)),
    kernels: { value: kernels.length > 0 ? Object.fromEntries(kernels) : undefined },
  })
  const model = new ShardedMLP({ layers: 3, inputs: 5, hidden: 7, outputs: 4 })
  const optimizer = new SGD({ learningRate: 0.1, momentum: 0.5 })
  const x = tf.randomNormal([6, 5], 0, 1, 'float32', 1)
  const labels = tf.tensor1d([0, 1, 2, 3, 0, 1], 'int32')
  const one = tf.scalar(1)
  function gradientsOf(recording, dy, halves) {
    const gradients = new Map()
    const listener = sumInto(gradients)
    const dx = halves ? recording.backwardInput(dy) : recording.backward(dy, listener)
    if (halves) recording.backwardParameters(listener)
    recording.dispose()
    return new Map([['', dx], ...gradients])
  }
  function step() {
    const [whole, halved] = [0, 1].map(() => recordModule(model, x, { needsInputGradient: true }))
    const loss = recordLoss(crossEntropy, whole.value, labels)
    const dy = loss.backward(one, () => undefined)
    loss.dispose()
    const taped = record((h) => crossEntropy(model.forward(h), labels), x, model.parameters, { needsInputGradient: true })
    const all = [gradientsOf(whole, dy, false), gradientsOf(halved, dy, true), gradientsOf(taped, one, false)]
    const [a, b, c] = all.map((map) => new Map(Array.from(map, ([name, g]) => [name, g.dataSync()])))
    const apart = (p, q) => Math.max(...Array.from(p, ([name, v]) => Math.max(...v.map((y, i) => Math.abs(y - q.get(name)[i])))))
    const [halvesDiffer, worst] = [apart(a, b), apart(a, c)]
    // of three passes: the clone of the sum of two keeps its values
    const sums = new Map()
    let clone, ofTwo
    for (const i of [0, 1, 2]) {
      if (i === 2) { clone = tf.clone(sums.values().next().value); ofTwo = clone.dataSync().slice() }
      const pass = recordModule(model, x, { needsInputGradient: true })
      pass.backward(dy, sumInto(sums)).dispose()
      pass.dispose()
    }
    const cloneDiffers = Math.max(...clone.dataSync().map((y, i) => Math.abs(y - ofTwo[i])))
    clone.dispose()
    const thirds = new Map(Array.from(sums, ([name, sum]) => [name, sum.dataSync().map((y) => y / 3)]))
    for (const sum of sums.values()) sum.dispose()
    a.delete('')
    const summed = apart(a, thirds)
    const gradients = all.shift()
    gradients.get('').dispose()
    gradients.delete('')
    optimizer.step(model.parameters, gradients)
    dy.dispose()
    for (const map of all) for (const g of map.values()) g.dispose()
    return { halvesDiffer, worst, sums: summed, cloneDiffers }
  }
  step()
  const before = left
  const found = step()
  process.stdout.write(JSON.stringify({ ...found, left: left - before, inPlace }))`
