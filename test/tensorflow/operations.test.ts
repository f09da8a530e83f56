import { hasKernels, tensorflow } from '../training/backend/support/tensorflow.ts'
import { WarmProcess } from '../training/backend/support/warm.ts'
import { needing } from '../needs.ts'

const { describe: describeIt } = needing(
  hasKernels,
  'TensorFlow with the kernels of these sources (npx tsrun setup tensorflow)',
)

describeIt('the operations of tsrun for TensorFlow', () => {
  const warm = new WarmProcess({ ...tensorflow })
  afterAll(() => {
    warm.end()
  })
  const run = async (body: string) =>
    await warm.run(`
      const { CausalSelfAttention, GELU, LayerNorm, loadBackend, record, RMSNorm, SiLU, tf } = training
      /** The output of a layer, and the gradients of its input and parameters. */
      const pass = (layer, values, shape) => {
        const parameters = layer.parameters.map((parameter) => {
          const { name, shape } = parameter
          const seed = 7 * name.length + name.charCodeAt(name.length - 1)
          return { parameter, value: tf.randomNormal(shape, 0.1, 0.2, 'float32', seed) }
        })
        for (const { parameter, value } of parameters) parameter.value = value
        const recorded = record((x) => layer.forward(x), tf.tensor(values, shape, 'float32'), layer.parameters,
          { needsInputGradient: true })
        const { value } = recorded
        const dy = tf.reshape(tf.sin(tf.range(0, value.size)), value.shape)
        const results = [value.dataSync()]
        const take = (_, gradient) => { results.push(gradient.dataSync()) }
        results.push(recorded.backward(dy, take).dataSync())
        recorded.dispose()
        return results.map((values) => [...values])
      }
      const distance = (actual, expected) => {
        const largest = Math.max(1e-30, ...expected.map(Math.abs))
        return Math.max(0, ...expected.map((value, i) => Math.abs(value - actual[i]) / largest))
      }
      /** The largest distance between tensorflow and cpu. */
      const compare = async (create, values, shape) => {
        const all = []
        for (const name of ['tensorflow', 'cpu']) {
          await loadBackend(name)
          all.push(pass(create(), values, shape))
        }
        return Math.max(...all[0].map((actual, i) => distance(actual, all[1][i])))
      }
      const noise = (shape) => {
        const size = shape.reduce((a, b) => a * b, 1)
        return Float32Array.from({ length: size }, (_, i) => 2 * Math.sin(i * i + 1))
      }
      ${body}`)

  it.each(['LayerNorm', 'RMSNorm'])('compute %s and its gradients', async (kind) => {
    const found = (await run(`
      const found = []
      for (const shape of [[2, 3, 64], [70, 33], [1, 1, 3], [300, 16], [5, 100], [0, 4]]) {
        const create = () => new ${kind}({ name: 'n', width: shape.at(-1) })
        found.push(await compare(create, noise(shape), shape))
      }
      return found`)) as number[]
    for (const distance of found) expect(distance).toBeLessThan(1e-5)
  })

  it('compute layer norm exactly for a large mean', async () => {
    const [constant, far] = (await run(`
      await loadBackend('tensorflow')
      const width = 100
      const create = () => new LayerNorm({ name: 'n', width })
      const normalize = (values) => create().forward(tf.tensor(values, [1, width])).dataSync()
      const near = Float32Array.from(noise([width]), (x) => Math.round(8 * x) / 8)
      return [
        Math.max(...normalize(new Float32Array(width).fill(1e6 / 3)).map(Math.abs)),
        distance(normalize(near.map((x) => x + 2 ** 20)), [...normalize(near)]),
      ]`)) as number[]
    expect(constant).toBe(0)
    expect(far).toBeLessThan(1e-6)
  })

  it.each(['GELU', 'SiLU'])('compute %s and its gradients', async (kind) => {
    const { distances, special, slopes } = (await run(`
      const distances = []
      for (const size of [1, 15, 16, 100, 0]) {
        distances.push(await compare(() => new ${kind}(), noise([size]).map((x) => 3 * x), [size]))
      }
      await loadBackend('tensorflow')
      const [values, gradient] = pass(new ${kind}(), [NaN, Infinity, 1e30, -1e30, -100, 100, -0, 0], [8])
      const special = values.map(String)
      const slopes = gradient.map((slope, i) => slope / Math.sin(i)).slice(2, 6)
      return { distances, special, slopes }`)) as Record<'distances' | 'slopes', number[]> & {
      special: string[]
    }
    for (const distance of distances) expect(distance).toBeLessThan(1e-5)
    expect(special).toEqual([
      'NaN',
      'Infinity',
      String(Math.fround(1e30)),
      '0',
      '0',
      '100',
      '0',
      '0',
    ])
    for (const [i, slope] of slopes.entries()) expect(slope).toBeCloseTo([1, 0, 0, 1][i]!)
  })

  it('compute causal attention and its gradients', async () => {
    const found = (await run(`
      const found = []
      const sizes = [[1, 1, 1, 4], [2, 7, 2, 4], [3, 64, 2, 5], [1, 65, 1, 3], [2, 130, 4, 16], [1, 40, 2, 20], [0, 3, 1, 2]]
      for (const [batch, length, heads, size] of sizes) {
        const create = () => new CausalSelfAttention({ name: 'a', width: heads * size, heads })
        const shape = [batch, length, heads * size]
        found.push(await compare(create, noise(shape), shape))
      }
      return found`)) as number[]
    for (const distance of found) expect(distance).toBeLessThan(1e-5)
  })

  it('compute the cross-entropy and its gradient', async () => {
    const found = (await run(`
      const { crossEntropy, recordLoss } = training
      const found = []
      for (const [rows, classes] of [[1, 1], [5, 16], [33, 65], [3, 1000], [2, 15]]) {
        const results = []
        for (const name of ['tensorflow', 'cpu']) {
          await loadBackend(name)
          const logits = tf.tensor(noise([rows, classes]).map((x) => 20 * x), [rows, classes])
          const labels = tf.tensor(Int32Array.from({ length: rows }, (_, i) => (7 * i) % classes), [rows], 'int32')
          const loss = recordLoss(crossEntropy, logits, labels)
          results.push([[...loss.value.dataSync()], [...loss.backward(tf.scalar(1), () => undefined).dataSync()]])
          loss.dispose()
        }
        found.push(...results[0].map((actual, i) => distance(actual, results[1][i])))
      }
      return found`)) as number[]
    for (const distance of found) expect(distance).toBeLessThan(1e-5)
  })

  it('pass NaN on to all positions that see it, and to none in earlier blocks', async () => {
    const found = (await run(`
      await loadBackend('tensorflow')
      const values = noise([1, 80, 8])
      values[8 * 70] = NaN
      const [output] = pass(new CausalSelfAttention({ name: 'a', width: 8, heads: 2 }), values, [1, 80, 8])
      const rows = Array.from({ length: 80 }, (_, row) => output.slice(8 * row, 8 * row + 8))
      return rows.map((row) => row.filter(Number.isNaN).length)`)) as number[]
    expect(found.slice(0, 64)).toEqual(new Array(64).fill(0))
    expect(found.slice(70)).toEqual(new Array(10).fill(8))
  })

  it('compute the same bits for a sequence, whatever else is in the batch', async () => {
    const [all, alone] = (await run(`
      await loadBackend('tensorflow')
      const values = noise([2, 70, 4])
      const layer = new CausalSelfAttention({ name: 'a', width: 4, heads: 2, deviation: 0.5 })
      const attend = (values, batch) => {
        const y = layer.forward(tf.tensor(values, [batch, 70, 4], 'float32'))
        return [...tf.slice(y, [batch - 1, 0, 0]).dataSync()]
      }
      return [attend(values, 2), attend(values.slice(70 * 4), 1)]`)) as number[][]
    expect(all).toEqual(alone)
  })

  it('refuse shapes that do not fit one another', async () => {
    const found = (await run(`
      await loadBackend('tensorflow')
      const backend = tf.backend()
      const { binding } = backend
      const attribute = (name, type, value) => ({ name, type, value })
      const call = (name, outputs, attributes, ...shapes) => {
        const inputs = backend.getInputTensorIds(shapes.map((shape) => tf.zeros(shape)))
        try { binding.executeOp(name, attributes, inputs, outputs); return '' } catch (error) { return error.message }
      }
      const centers = attribute('centers', binding.TF_ATTR_BOOL, true)
      const epsilon = attribute('epsilon', binding.TF_ATTR_FLOAT, 1e-5)
      const size = attribute('size', binding.TF_ATTR_INT, 2)
      return [
        call('TsrunNormalize', 2, [epsilon, centers], [2, 3], [3], [2]),
        call('TsrunNormalizeGradient', 3, [centers], [2, 3], [2, 3], [3], [3]),
        call('TsrunAttention', 2, [size], [2, 3, 7]),
        call('TsrunAttentionGradient', 1, [size], [2, 3, 6], [3], [2, 3, 2]),
      ]`)) as string[]
    for (const message of found) expect(message).toContain('do not fit one another')
  })
})
