import { hasFunctions, tensorflow } from '../training/backend/support/tensorflow.ts'
import { WarmProcess } from '../training/backend/support/warm.ts'
import { needing } from '../needs.ts'

const distributed = new URL('../../packages/distributed/dist/index.js', import.meta.url).href

/** Counts calls of operations and of functions in `calls`, and in `left` TensorFlow's tensors that are there. */
const counting = `
  await training.loadBackend('tensorflow')
  const { AdamW, clipGradients, crossEntropy, Linear, recordLoss, recordModule, SGD, ShardedMLP, tf } = training
  const { GPT, gpt } = await load('@tsrun/models')
  const backend = tf.backend()
  const stock = backend.binding
  let [left, calls] = [0, { operations: 0, functions: 0 }]
  const counted = {
    executeOp(name, ...rest) {
      const outputs = stock.executeOp(name, ...rest)
      left += outputs.length
      calls.operations++
      return outputs
    },
    functions: {
      define: (...args) => stock.functions.define(...args),
      call(...args) {
        const results = stock.functions.call(...args)
        left += results.length
        calls.functions++
        return results
      },
    },
    createTensor(...args) {
      left++
      return stock.createTensor(...args)
    },
    deleteTensor(id) {
      left--
      return stock.deleteTensor(id)
    },
  }
  const count = (others = {}) => {
    backend.binding = Object.create(stock, Object.getOwnPropertyDescriptors({ ...counted, ...others }))
  }
  count()
`

const gpt = `
  const model = new GPT({ layers: 2, heads: 2, width: 16, block: 8, vocabulary: 20 })
  const idsOf = (last) => tf.tensor2d(Int32Array.from({ length: 24 }, (_, i) => (i === 23 ? last : (7 * i) % 20)), [3, 8], 'int32')
`

const { describe: describeIt } = needing(
  hasFunctions,
  'TensorFlow with the binding of these sources (npx tsrun setup tensorflow)',
)

describeIt('repeated passes of a module', () => {
  const warm = new WarmProcess({ ...tensorflow })
  const run = async (body: string) => await warm.run(`${counting}${body}`)
  afterAll(() => {
    warm.end()
  })

  it('become TensorFlow functions with the values of the tape, whole and in halves', async () => {
    const kinds = ['whole', 'whole', 'whole', 'halves', 'halves', 'whole', 'halves']
    const found = (await run(`${gpt}
      const x = idsOf(3)
      const dy = tf.randomNormal([3, 8, 20], 0, 1, 'float32', 1)
      const pass = (kind) => {
        const before = left
        calls = { operations: 0, functions: 0 }
        const gradients = []
        const listener = ({ name }, gradient) => {
          gradients.push([name, [...gradient.dataSync()]])
          gradient.dispose()
        }
        const recording = recordModule(model, x, { needsInputGradient: false })
        if (kind === 'whole') recording.backward(dy, listener)
        else {
          recording.backwardInput(dy)
          recording.backwardParameters(listener)
        }
        const numbers = JSON.stringify([[...recording.value.dataSync()], gradients])
        recording.dispose()
        return { numbers, left: left - before, calls }
      }
      pass('whole')
      return ${JSON.stringify(kinds)}.map(pass)`)) as {
      numbers: string
      left: number
      calls: { operations: number; functions: number }
    }[]
    expect(new Set(found.map(({ numbers }) => numbers)).size).toBe(1)
    expect(found.map(({ left }) => left)).toEqual(kinds.map(() => 0))
    // the first pass in halves is traced, on the tape
    expect(found.slice(1).map(({ calls }) => calls.functions)).toEqual([2, 2, 1, 3, 2, 3])
    expect(found.at(-1)!.calls.operations).toBe(0)
  })

  it('of a single row have the bits of single operations', async () => {
    const found = (await run(`
      const model = new Linear({ name: 'l', inputs: 300, outputs: 200 })
      const x = tf.randomNormal([1, 300], 0, 1, 'float32', 1)
      const dy = tf.randomNormal([1, 200], 0, 1, 'float32', 2)
      return [1, 2, 3, 4].map(() => {
        const recording = recordModule(model, x, { needsInputGradient: true })
        const dx = recording.backward(dy, (_, gradient) => gradient.dispose())
        const numbers = JSON.stringify([[...recording.value.dataSync()], [...dx.dataSync()]])
        recording.dispose()
        return numbers
      })`)) as string[]
    expect(new Set(found).size).toBe(1)
  })

  it('check the token ids each time', async () => {
    const error = await run(`${gpt}
      for (const last of [1, 2, 3]) recordModule(model, idsOf(last), { needsInputGradient: false }).dispose()
      try {
        recordModule(model, idsOf(20), { needsInputGradient: false })
      } catch (error) {
        return error.code
      }`)
    expect(error).toBe('ERR_TSR_ARGUMENT')
  })

  it('use the parameter values of their forward pass', async () => {
    const [before, after] = (await run(`${gpt}
      const x = idsOf(3)
      const dy = tf.ones([3, 8, 20])
      const pass = (change) => {
        let sum
        const recording = recordModule(model, x, { needsInputGradient: false })
        change()
        recording.backward(dy, ({ name }, gradient) => {
          if (name === 'h.0.ln_1.weight') sum = [...gradient.dataSync()]
          gradient.dispose()
        })
        recording.dispose()
        return sum
      }
      const replace = () => {
        for (const parameter of model.parameters) {
          const former = parameter.value
          parameter.value = tf.zerosLike(former)
          former.dispose()
        }
      }
      pass(() => undefined)
      pass(() => undefined)
      return [pass(() => undefined), pass(replace)]`)) as [number[], number[]]
    expect(after).toEqual(before)
  })

  it('follow parameters whose memory moved before the backward pass, as in ZeRO 3', async () => {
    const losses = (await run(`
      const { runWorld, initDeviceMesh } = await load(${JSON.stringify(distributed)})
      const train = async (zero, recompute) => {
        const [losses] = await runWorld({ size: 2, seed: 1 }, async (group) => {
          const mesh = await initDeviceMesh({ dp: 2 }, group)
          const recipe = gpt({ layers: 2, heads: 2, width: 16, block: 8, vocabulary: 20 })
          const optimizer = new SGD({ learningRate: 0.5 })
          const run = await training.trainer(recipe, { mesh, zero, recompute, optimizer })
          const losses = []
          for (let step = 0; step < 8; step++) {
            const ids = Int32Array.from({ length: 24 }, (_, i) => (7 * i + 3 * group.rank + i * i) % 20)
            const batch = () => tf.tensor(ids, [3, 8], 'int32')
            losses.push((await run.step({ size: 3, inputs: batch, labels: batch })).loss)
          }
          run.dispose()
          return losses
        })
        return losses
      }
      return [await train(0, false), await train(3, false), await train(3, true)]`)) as number[][]
    const [whole, sharded, recomputed] = losses as [number[], number[], number[]]
    expect(whole.at(-1)).toBeLessThan(whole[0]!)
    for (const [i, loss] of whole.entries()) {
      expect(sharded[i]).toBeCloseTo(loss, 5)
      expect(recomputed[i]).toBeCloseTo(loss, 5)
    }
  })

  it('follow a module that was replaced', async () => {
    const [recorded, direct] = (await run(`
      const { GELU, LayerNorm, ReLU, Sequential } = training
      count({ kernels: undefined })
      const model = new Sequential({ norm: new LayerNorm({ name: 'norm', width: 3 }), act: new ReLU() })
      const x = tf.tensor2d([[1, 2, 4]])
      const outputs = () => [...recordModule(model, x, { needsInputGradient: false }).value.dataSync()]
      for (let i = 0; i < 3; i++) outputs()
      model.children.act = new GELU()
      return [outputs(), [...model.forward(x).dataSync()]]`)) as [number[], number[]]
    expect(recorded).toEqual(direct)
  })

  it('become TensorFlow functions for only a few input shapes, as losses do', async () => {
    const defined = await run(`
      let defined = 0
      count({ functions: { ...counted.functions, define: (...args) => {
        defined++
        return stock.functions.define(...args)
      } } })
      const model = new GPT({ layers: 1, heads: 2, width: 16, block: 64, vocabulary: 20 })
      for (let length = 1; length <= 20; length++) {
        const ids = tf.zeros([1, length], 'int32')
        for (let i = 0; i < 3; i++) {
          const pass = recordModule(model, ids, { needsInputGradient: false })
          const loss = recordLoss(crossEntropy, pass.value, ids)
          const dy = loss.backward(tf.scalar(1), () => undefined)
          pass.backward(dy, (_, gradient) => gradient.dispose())
          for (const part of [pass, loss, dy]) part.dispose()
        }
      }
      return defined`)
    // forward, backward, the loss and its gradient, of eight shapes; some losses may be of the tests before
    expect(defined).toBeGreaterThan(26)
    expect(defined).toBeLessThan(33)
  })

  it('do not become TensorFlow functions if a derived class has its own forward', async () => {
    const outputs = await run(`
      class Scaled extends Linear {
        factor = 1
        forward(x) {
          return tf.mul(super.forward(x), this.factor)
        }
        get record() {
          return undefined
        }
      }
      const model = new Scaled({ name: 'scaled', inputs: 1, outputs: 1, bias: false })
      model.weight.value = tf.tensor2d([[1]])
      return [1, 2, 3, 4].map((factor) => {
        model.factor = factor
        return recordModule(model, tf.tensor2d([[1]]), { needsInputGradient: false }).value.dataSync()[0]
      })`)
    expect(outputs).toEqual([1, 2, 3, 4])
  })
})

describeIt('a training step with tensors on a GPU', () => {
  it('computes both the sign and the ReLU of one value, and their gradients', async () => {
    const warm = new WarmProcess({ ...tensorflow })
    const found = (await warm.run(`${counting}
      backend.isUsingGpuDevice = true
      class Both extends training.ReLU {
        forward(x) {
          return tf.add(tf.relu(x), tf.sign(x))
        }
        isRepeatable() {
          return true
        }
      }
      const model = new Both()
      const x = tf.tensor1d([-2, 0, 3])
      return [1, 2, 3, 4].map(() => {
        const pass = recordModule(model, x, { needsInputGradient: true })
        const dx = pass.backward(tf.tensor1d([1, 1, 1]), () => undefined)
        return [[...pass.value.dataSync()], [...dx.dataSync()]]
      })`)) as number[][][]
    warm.end()
    for (const [values, gradients] of found) {
      expect(values).toEqual([-1, 0, 4])
      expect(gradients).toEqual([0, 0, 1])
    }
  })

  it('makes few calls, and updates parameters as separate operations do', async () => {
    const warm = new WarmProcess({ ...tensorflow })
    // what the host may assume of tensors; the CPU computes here
    const found = (await warm.run(`${counting}
      backend.isUsingGpuDevice = true
      const steps = async (model, x, labels, optimizer) => {
        const one = tf.scalar(1)
        for (let step = 0; step < 5; step++) {
          calls = { operations: 0, functions: 0 }
          const pass = recordModule(model, x, { needsInputGradient: false })
          const loss = recordLoss(crossEntropy, pass.value, labels)
          const dy = loss.backward(one, () => undefined)
          const gradients = new Map()
          pass.backward(dy, ({ name }, gradient) => gradients.set(name, gradient))
          await clipGradients(model.parameters, gradients, { maxNorm: 0.1 })
          optimizer.step(model.parameters, gradients)
          for (const part of [pass, loss, dy]) part.dispose()
        }
        return { calls, values: model.parameters.map(({ value }) => [...value.dataSync()]) }
      }
      const train = async () => {
        const ids = tf.tensor2d(Int32Array.from({ length: 24 }, (_, i) => (7 * i) % 20), [3, 8], 'int32')
        const gpt = new GPT({ layers: 2, heads: 2, width: 16, block: 8, vocabulary: 20 })
        const decayed = new AdamW({ weightDecay: 0.1, withoutDecay: ['**.bias'] })
        const mlp = new ShardedMLP({ layers: 3, inputs: 5, hidden: 7, outputs: 4 })
        const x = tf.randomNormal([6, 5], 0, 1, 'float32', 1)
        const labels = tf.tensor1d([0, 1, 2, 3, 0, 1], 'int32')
        const momentum = new SGD({ learningRate: 0.1, momentum: 0.5, nesterov: true, weightDecay: 0.01 })
        return [await steps(gpt, ids, ids, decayed), await steps(mlp, x, labels, momentum)]
      }
      const repeated = await train()
      count({ functions: undefined })
      const plain = await train()
      const worst = repeated.map(({ values }, k) => Math.max(...values.flatMap((list, i) =>
        list.map((value, j) => Math.abs(value - plain[k].values[i][j])))))
      return { worst, calls: repeated.map(({ calls }) => calls), plain: plain.map(({ calls }) => calls) }`)) as {
      worst: number[]
      calls: { operations: number; functions: number }[]
      plain: { operations: number; functions: number }[]
    }
    warm.end()
    expect(Math.max(...found.worst)).toBeLessThan(1e-6)
    for (const { operations, functions } of found.calls) {
      expect(functions).toBeLessThan(9)
      expect(operations).toBeLessThan(4)
    }
    expect(found.plain[0]!.operations).toBeGreaterThan(500)
  })
})
