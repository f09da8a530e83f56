import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { thisSystem } from '@tsrun/core'
import { tensorflow } from '../support/tensorflow.ts'
import { needing } from '../../../needs.ts'

const entry = fileURLToPath(new URL('../../../../packages/training/dist/index.js', import.meta.url))

/** Runs a module in a process of its own. */
function run(script: string, env: Record<string, string>) {
  const source = `import { loadBackend, record, tf } from ${JSON.stringify(entry)}\n${script}`
  const flags = ['--input-type=module', '-e', source]
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

/** A set-up whose package is the backend cpu, and says of itself what `facts` say. */
function setUpForGpus(facts: { readonly isUsingGpuDevice: boolean }): void {
  setUp('', { package: '@tensorflow/tfjs-node-gpu', libraryFolders: ['/cuda/lib'] })
  const backend = `
    require(${JSON.stringify(createRequire(entry).resolve('@tensorflow/tfjs-backend-cpu'))})
    const tf = require('@tensorflow/tfjs')
    class Callback extends tf.CustomCallback {}
    tf.registerCallbackConstructor(1, Callback)
    const cpu = tf.findBackendFactory('cpu')
    for (const { kernelName } of tf.getKernelsForBackend('cpu')) {
      tf.registerKernel({ kernelName, backendName: 'tensorflow', kernelFunc() {} })
    }
    tf.registerBackend('tensorflow', () => Object.assign(cpu(), ${JSON.stringify(facts)}), 3)`
  const folder = join(home, 'files/node_modules/@tensorflow/tfjs-node-gpu')
  mkdirSync(folder)
  writeFileSync(join(folder, 'index.js'), backend)
}

describe('the backend tensorflow without a set-up', () => {
  it('is refused with the command that sets it up', async () => {
    const { stdout } = await run(load, { TSRUN_HOME: home, TSRUN_BACKEND: 'tensorflow' })
    expect(stdout).toMatch(/^ERR_TSR_BACKEND .* it is not set up: run `npx tsrun setup tensorflow`/)
  })

  it('is not chosen by auto, which logs the backend and the device', async () => {
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

describe('the backend tensorflow with a broken set-up', () => {
  it.each([
    [
      'binding cannot be loaded',
      'throw new Error("libtensorflow_cc.so.2: no such file\\nmore")',
      {},
    ],
    ['package was removed', '', { folder: '/nowhere' }],
    ['operating system differs', '', { system: 'plan9-mips' }],
    ['format is unknown', '', { format: 7 }],
  ])('is refused when its %s, and auto logs why it uses wasm', async (_, program, facts) => {
    setUp(program, facts)
    const asked = { TSRUN_HOME: home, TSRUN_BACKEND: 'tensorflow' }
    const { stdout, stderr } = await run(
      `${load}\nprint('; ' + (await loadBackend('auto')).name)`,
      asked,
    )
    expect(stdout).toMatch(/^ERR_TSR_BACKEND .*`npx tsrun setup tensorflow`.*; wasm$/s)
    expect(stderr).toContain('TensorFlow is set up but cannot be used: taking wasm')
  })

  it.each([
    ['ERR_DLOPEN_DISABLED', '--allow-addons'],
    ['ERR_ACCESS_DENIED', '--allow-fs-read for that folder'],
  ])("names the flag of Node's permission model after %s, not the set-up", async (code, flag) => {
    setUp(`throw Object.assign(new Error('denied'), { code: '${code}' })`)
    const { stdout } = await run(load, { TSRUN_HOME: home, TSRUN_BACKEND: 'tensorflow' })
    expect(stdout).toContain(`does not load (denied): give Node ${flag}`)
    expect(stdout).not.toContain('npx tsrun setup')
  })

  it('is refused if a set-up for GPUs finds no GPU, unless GPUs are hidden', async () => {
    setUpForGpus({ isUsingGpuDevice: false })
    const asked = { TSRUN_HOME: home, TSRUN_BACKEND: 'tensorflow' }
    expect((await run(load, asked)).stdout).toMatch(
      /^ERR_TSR_BACKEND .*it is set up for GPUs and finds none.*: start it with tsrun.* LD_LIBRARY_PATH=\/cuda\/lib,/,
    )
    expect((await run(load, { ...asked, LD_LIBRARY_PATH: '/cuda/lib:/other' })).stdout).toMatch(
      /finds none.*: look at nvidia-smi,/,
    )
    expect((await run(load, { ...asked, CUDA_VISIBLE_DEVICES: '' })).stdout).toBe('tensorflow')
    expect((await run(load, { ...asked, TSRUN_BACKEND: 'auto' })).stdout).toBe('wasm')
  })
})

describe('the backend tensorflow on a GPU', () => {
  it.each([
    ['the first', {}, 'Card 0'],
    ['the one of the rank', { CUDA_VISIBLE_DEVICES: '3' }, 'Card 3'],
    ['the first of several', { CUDA_VISIBLE_DEVICES: 'GPU-ab, GPU-cd' }, 'Card GPU-ab'],
    ['one unknown to nvidia-smi', { CUDA_VISIBLE_DEVICES: 'MIG-ab' }, 'GPU'],
  ])('reports the name of its GPU: %s', async (_, visible, device) => {
    setUpForGpus({ isUsingGpuDevice: true })
    const answer =
      'case $* in *MIG*) exit 6 ;; esac; for last; do :; done; echo "Card ${last#--id=}"'
    writeFileSync(join(home, 'nvidia-smi'), `#!/bin/sh\n${answer}\n`, { mode: 0o755 })
    const { stdout, stderr } = await run(load, {
      ...{ TSRUN_HOME: home, TSRUN_BACKEND: 'tensorflow' },
      PATH: `${home}:${process.env['PATH']!}`,
      ...visible,
    })
    expect(stdout).toBe('tensorflow')
    expect(stderr).toContain(`computed by tensorflow on ${device}, `)
  })
})

const { describe: describeIt } = needing(
  tensorflow !== undefined,
  'TensorFlow (npx tsrun setup tensorflow)',
)

describeIt('the backend tensorflow', () => {
  const env = { ...tensorflow, TSRUN_BACKEND: 'tensorflow' }

  it('shares the engine and the gradients with a script that imports TensorFlow.js itself', async () => {
    const { stdout } = await run(
      `${load}
       const umbrella = await import('@tensorflow/tfjs')
       const [g] = umbrella.grads((x) => umbrella.square(x))([tf.scalar(3)])
       print([umbrella.engine() === tf.engine(), g.dataSync()[0], umbrella.getBackend()])`,
      env,
    )
    expect(stdout).toBe('tensorflowtrue,6,tensorflow')
  })

  it('runs operations that need functions removed in Node 23', async () => {
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

  it('computes Step as the gradient of ReLU needs it, also for NaN', async () => {
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

  it('logs the number of threads that the variable sets', async () => {
    const { stderr } = await run(load, { ...env, TF_NUM_INTRAOP_THREADS: '3' })
    expect(stderr).toMatch(/tensors are computed by tensorflow on .+, 3 threads/)
  })

  it('computes fused products with bias and ReLU', async () => {
    const { stdout } = await run(
      `${load}
       const [a, b, bias] = [tf.tensor2d([[1], [2]]), tf.tensor2d([[3, 4]]), tf.tensor1d([-5, 1])]
       for (const activation of ['linear', 'relu']) {
         print(' ' + tf.fused.matMul({ a, b, bias, activation }).dataSync())
       }`,
      env,
    )
    expect(stdout).toBe('tensorflow -2,5,1,9 0,5,1,9')
  })
})
