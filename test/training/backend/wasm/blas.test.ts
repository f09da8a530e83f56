import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { FakeBlas, withCompiler } from '../../../doctor/support/fake-blas.ts'

const entry = fileURLToPath(new URL('../../../../packages/training/dist/index.js', import.meta.url))

/** Runs a module in a process of its own, whose environment a library sees. */
function run(script: string, env: Record<string, string>) {
  const source = `
    import * as training from ${JSON.stringify(entry)}
    const { Block, Linear, loadBackend, record, recordModule, ShardedMLP, sumInto, tf, trainer } = training
    /** Products of odd sizes in all transpositions, with a bias and a ReLU too. */
    const products = () => [0, 1, 2, 3].flatMap((bits) => {
      const [ta, tb] = [bits > 1, bits % 2 > 0]
      const a = tf.randomNormal(ta ? [2, 30, 17] : [2, 17, 30], 0, 1, 'float32', 1)
      const b = tf.randomNormal(tb ? [21, 30] : [30, 21], 0, 1, 'float32', 2)
      const bias = tf.randomNormal([21], 0, 1, 'float32', 3)
      const first = tf.reshape(tf.slice(a, 0, 1), a.shape.slice(1))
      const fused = { a: first, b, transposeA: ta, transposeB: tb, bias, activation: 'relu' }
      const [c, d, e] = [[300, 100], [300, 80], [400, 128]].map((shape, i) => {
        return tf.randomNormal(shape, 0, 0.05, 'float32', i + 1)
      })
      const wide = tf.randomNormal([400, 320], 0, 0.05, 'float32', 4)
      const long = tf.reshape(wide, [125, 1024])
      const divided = [
        tf.matMul(c, tf.slice(d, 0, 100)),
        tf.matMul(c, d, true),
        tf.matMul(c, tf.slice(c, 0, 21), false, true),
        tf.matMul(tf.slice(e, 0, [400, 40]), e, true),
        tf.matMul(tf.reshape(tf.slice(wide, 0, 20), [16, 400]), wide),
        tf.matMul(tf.slice(long, 0, 16), long, false, true),
      ]
      const all = [tf.matMul(a, b, ta, tb), tf.fused.matMul(fused), ...divided]
      return all.flatMap((y) => [...y.dataSync()])
    })
    const distance = (x, y) => x.reduce((most, value, i) => Math.max(most, Math.abs(value - y[i])), 0)
    try {
      ${script}
    } catch (error) {
      console.log(error.code, error.message)
    }`
  return promisify(execFile)(process.execPath, ['--input-type=module', '-e', source], {
    env: { ...process.env, ...env, NODE_OPTIONS: '' },
  })
}

const compare = `
  const { blas } = await loadBackend('wasm')
  const fast = products()
  const exact = await loadBackend('wasm', { math: 'exact' })
  console.log(blas, exact.blas, distance(fast, products()) < 1e-5)`

describe('the wasm backend', () => {
  it.each([
    [{ TSRUN_BLAS: 'off' }, /^undefined undefined true\n$/],
    [{ TSRUN_BLAS: '/nowhere.so' }, /^ERR_TSR_BACKEND .*TSRUN_BLAS is \/nowhere\.so: .*open/],
    [{ TSRUN_MATH: 'quick' }, /^ERR_TSR_ENVIRONMENT .*TSRUN_MATH is "quick"; expected .*exact/],
  ])('with %j prints a line that matches %s', async (env, line) => {
    const { stdout } = await run(compare, env)
    expect(stdout).toMatch(line)
  })

  it('refuses an unknown way of computing', async () => {
    const { stdout } = await run(`await loadBackend('wasm', { math: 'slow' })`, {})
    expect(stdout).toMatch(/^ERR_TSR_ARGUMENT math is "slow"; expected "exact" or "fast"/)
  })
})

withCompiler.describe('a BLAS', () => {
  const fake = new FakeBlas()

  it.each(['Played', 'SkylakeX'])(
    'computes the products of the wasm backend with the kernels %s, up to rounding',
    async (kernels) => {
      const env = { TSRUN_BLAS: fake.path, OPENBLAS_CORETYPE: kernels }
      const { stdout } = await run(compare, env)
      expect(stdout).toBe(`${fake.path} (${kernels}) undefined true\n`)
    },
  )

  it.each(['transposition', 'beta'])('is refused if it is named and wrong: %s', async (FAULT) => {
    const { stdout } = await run(compare, { TSRUN_BLAS: fake.path, FAULT })
    expect(stdout).toMatch(/^ERR_TSR_BACKEND .*its products are wrong/)
  })

  it('is taken from the set-up, and left out with a warning if it is wrong or unknown', async () => {
    const home = mkdtempSync(join(tmpdir(), 'tsrun-home-'))
    try {
      const facts = { version: '1', system: `${process.platform}-${process.arch}` }
      const manifest = {
        format: 1,
        library: fake.path,
        ...facts,
        createdAt: '2026-01-01T00:00:00Z',
      }
      mkdirSync(join(home, 'blas'), { mode: 0o700 })
      writeFileSync(join(home, 'blas', 'manifest.json'), JSON.stringify(manifest))
      const env = { TSRUN_HOME: home, TSRUN_BLAS: '' }
      expect((await run(compare, env)).stdout).toContain(`${fake.path} (Played) undefined true\n`)
      const { stdout, stderr } = await run(compare, { ...env, FAULT: 'beta' })
      expect(stdout + stderr).toContain(`${fake.path} is not used: its products are wrong`)
      expect(stdout).not.toContain('Played')
      writeFileSync(join(home, 'blas', 'manifest.json'), '{')
      const damaged = await run(compare, env)
      expect(damaged.stdout + damaged.stderr).toMatch(/ERR_TSR_SETUP_MANIFEST|not valid JSON/)
      expect(damaged.stdout).toMatch(/undefined undefined true\n$/)
    } finally {
      rmSync(home, { recursive: true })
    }
  })

  const passes = `
    const layer = new Linear({ name: 'layer', inputs: 40, outputs: 30 })
    const [taken, expected] = [[], new Float32Array(1200)]
    /** Runs a backward pass twice: the second adds the gradient of the weight to what is expected. */
    const pass = (seed, onGradient) => {
      const x = tf.randomNormal([16, 40], 0, 1, 'float32', seed)
      const dy = tf.randomNormal([16, 30], 0, 1, 'float32', seed)
      const backward = (listener) => layer.record(x, { needsInputGradient: false }).backward(dy, listener)
      backward(onGradient)
      backward((parameter, gradient) => {
        if (parameter !== layer.weight) return
        gradient.dataSync().forEach((value, i) => (expected[i] += value))
      })
    }
    const isExpected = (values) => distance(values, expected) < 1e-5`

  it.each([
    ['fast', 'bias weight bias bias weight'],
    ['exact', 'bias weight bias weight bias weight'],
  ])('with %s, sums gradients and passes these to the listener: %s', async (math, names) => {
    const script = `
      await loadBackend('wasm', { math: '${math}' })
      ${passes}
      const gradients = new Map()
      const add = sumInto(gradients)
      const take = (parameter, gradient) => {
        taken.push(parameter.name.slice('layer.'.length))
        add(parameter, gradient)
      }
      const listener = Object.assign(take, { sums: gradients })
      const sum = () => gradients.get('layer.weight')
      pass(1, listener)
      pass(2, listener)
      const isRight = isExpected(sum().dataSync())
      const [held, before] = [tf.clone(sum()), sum().dataSync().slice()]
      pass(3, listener)
      const isKept = distance(held.dataSync(), before) === 0
      console.log(...taken, isRight, isKept, isExpected(sum().dataSync()))`
    const { stdout } = await run(script, { TSRUN_BLAS: fake.path })
    expect(stdout).toBe(`${names} true true true\n`)
  })

  it.each([
    ['fast', 'bias written bias written'],
    ['exact', 'bias weight bias weight'],
  ])('with %s, writes gradients to the memory of the listener: %s', async (math, names) => {
    const script = `
      await loadBackend('wasm', { math: '${math}' })
      ${passes}
      const values = new Float32Array(1300).fill(NaN)
      const part = values.subarray(50, 1250)
      const take = ({ name }, gradient) => {
        taken.push(name.slice('layer.'.length))
        if (name !== 'layer.weight') return
        gradient.dataSync().forEach((value, i) => (part[i] = value + (taken.length > 2 ? part[i] : 0)))
      }
      const listener = Object.assign(take, {
        memory: {
          placeOf: (parameter) =>
            parameter === layer.weight ? { values: part, adds: taken.length > 2 } : undefined,
          written: () => taken.push('written'),
        },
      })
      pass(1, listener)
      pass(2, listener)
      const others = values.filter((value) => Number.isNaN(value)).length
      console.log(...taken, isExpected(part), others)`
    const { stdout } = await run(script, { TSRUN_BLAS: fake.path })
    expect(stdout).toBe(`${names} true 100\n`)
  })

  it('gives a transformer block the results of the tape and of the kernels, up to rounding', async () => {
    const script = `
      await loadBackend('wasm')
      const block = new Block({ name: 'h', width: 40, heads: 2, deviation: 0.3 })
      const x = tf.randomNormal([2, 70, 40], 0, 1, 'float32', 1)
      const results = (recording) => {
        const found = new Map([['value', recording.value.dataSync()]])
        const dy = tf.randomNormal([2, 70, 40], 0, 1, 'float32', 2)
        const dx = recording.backward(dy, ({ name }, gradient) => found.set(name, gradient.dataSync()))
        return found.set('dx', dx.dataSync())
      }
      const options = { needsInputGradient: true }
      const fast = results(recordModule(block, x, options))
      const taped = results(record((h) => block.forward(h), x, block.parameters, options))
      await loadBackend('wasm', { math: 'exact' })
      const exact = results(recordModule(block, x, options))
      const areClose = [taped, exact].every((others) =>
        [...fast].every(([name, values]) => {
          const scale = Math.max(...values.map(Math.abs))
          return distance(values, others.get(name)) < 1e-4 * scale
        }),
      )
      console.log(fast.size, areClose, distance(fast.get('dx'), exact.get('dx')) > 0)`
    const { stdout } = await run(script, { TSRUN_BLAS: fake.path })
    expect(stdout).toBe('14 true true\n')
  })

  it('computes no more products after deterministic training has begun', async () => {
    const script = `
      await loadBackend('wasm')
      const before = products()
      const run = await trainer(new ShardedMLP({ layers: 2 }), { deterministic: true })
      process.env.FAULT = 'transposition'
      console.log(distance(before, products()) < 1e-5)
      run.dispose()
      process.exit()`
    const { stdout } = await run(script, { TSRUN_BLAS: fake.path })
    expect(stdout).toBe('true\n')
  })
})
