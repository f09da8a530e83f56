import { hasKernels, tensorflow } from '../training/backend/support/tensorflow.ts'
import { WarmProcess } from '../training/backend/support/warm.ts'
import { needing } from '../needs.ts'

/** Counts, in `left`, TensorFlow's tensors that are there: TensorFlow.js knows of some only. */
const counting = `
  const { Adam, crossEntropy, record, recordLoss, recordModule, SGD, ShardedMLP, sumInto, tf } = training
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
  const kernels = Object.entries(backend.binding.kernels ?? {}).map(([name, kernel]) => [name, kernel === true || ((...args) => {
    const out = kernel(...args)
    left += out?.length ?? 0
    // the gradient of the input alone: those of the parameters are in the sums
    if (name === 'linearBackward' && out.length === 1) inPlace = true
    return out
  })])
  const { functions } = backend.binding
  const call = (...args) => {
    const out = functions.call(...args)
    left += out.length
    return out
  }
  backend.binding = Object.create(backend.binding, {
    ...Object.fromEntries(counts.map(counted)),
    functions: { value: functions && { define: functions.define, call } },
    kernels: { value: kernels.length > 0 ? Object.fromEntries(kernels) : undefined },
  })
`

const problem = (hidden: number): string => `
  const model = new ShardedMLP({ layers: 3, inputs: 5, hidden: ${hidden}, outputs: 4 })
  const optimizer = new SGD({ learningRate: 0.1, momentum: 0.5 })
  const x = tf.randomNormal([6, 5], 0, 1, 'float32', 1)
  const labels = tf.tensor1d([0, 1, 2, 3, 0, 1], 'int32')
  const one = tf.scalar(1)
`

/** Compares the gradients of passes in a whole, in halves, added up and from the tape. */
const compare = `
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
    const widest = (v, w) => v.reduce((most, y, i) => Math.max(most, Math.abs(y - w[i])), 0)
    const apart = (p, q) => Math.max(...Array.from(p, ([name, v]) => widest(v, q.get(name))))
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
    const cloneDiffers = widest(clone.dataSync(), ofTwo)
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
  return { ...step(), left: left - before, inPlace }`

/** Steps of two micro-batches, the second in halves, by both optimizers in turn. */
const train = (steps: number): string => `
  const adam = new Adam({ learningRate: 0.01 })
  function step(i) {
    const gradients = new Map()
    for (const halves of [false, true]) {
      const pass = recordModule(model, x, { needsInputGradient: true })
      const loss = recordLoss(crossEntropy, pass.value, labels)
      const dy = loss.backward(one, () => undefined)
      const listener = sumInto(gradients)
      const dx = halves ? pass.backwardInput(dy) : pass.backward(dy, listener)
      if (halves) pass.backwardParameters(listener)
      for (const part of [loss, pass, dy, dx]) part.dispose()
    }
    const which = i % 2 === 0 ? optimizer : adam
    which.step(model.parameters, gradients)
  }
  for (let i = 0; i < 10; i++) step(i)
  const [early, known] = [left, tf.memory().numTensors]
  for (let i = 0; i < ${steps}; i++) step(i)
  return { left: left - early, known: tf.memory().numTensors - known }`

const { describe: describeIt } = needing(
  tensorflow !== undefined,
  'TensorFlow (npx tsrun setup tensorflow)',
)

describeIt.each([
  ['a kernel for each pass', 7, ''],
  ['a kernel for each layer', 1100, ''],
  [
    'separate operations',
    7,
    "Object.defineProperty(training.tf.backend().binding, 'kernels', { value: undefined })",
  ],
])('linear layers and their loss on tensorflow, computed by %s', (_, hidden, before) => {
  let found: Record<'compared' | 'trained', Record<string, number>>
  beforeAll(async () => {
    const warm = new WarmProcess({
      ...tensorflow,
      TSRUN_BACKEND: 'tensorflow',
      TF_NUM_INTRAOP_THREADS: '1',
    })
    const outcome = await warm.run(`
      await training.loadBackend()
      ${before}
      ${counting}${problem(hidden)}
      const compare = () => {${compare}}
      const train = () => {${train(hidden > 1000 ? 100 : 1000)}}
      return { compared: compare(), trained: train() }`)
    found = outcome as typeof found
    warm.end()
  })

  it('have the gradients of the tape', () => {
    const { compared } = found
    expect(compared).toMatchObject({ halvesDiffer: 0, cloneDiffers: 0, left: 0 })
    expect(compared['worst']).toBeLessThan(1e-5)
    expect(compared['sums']).toBeLessThan(1e-5)
    expect('inPlace' in compared).toBe(before === '' && hasKernels)
  })

  it('leak no tensor in many steps', () => {
    expect(found.trained).toEqual({ left: 0, known: 0 })
  })
})

const inOneCall = '{ layers: 3, inputs: 5, hidden: 7, outputs: 4 }'
/** More elements than are computed in one call. */
const layerByLayer = '{ layers: 2, inputs: 5, hidden: 1100, outputs: 1000 }'

describeIt.each([
  ['small layers', inOneCall, 6, '1', true],
  ['large layers and few rows, with one thread', layerByLayer, 6, '1', true],
  ['large layers and many rows, with one thread', layerByLayer, 40, '1', true],
  ['large layers, with two threads', layerByLayer, 6, '2', false],
])('the gradients of %s', (_, shape, rows, threads, isWritten) => {
  it(`are ${isWritten ? 'written into the memory of a listener' : 'tensors'}`, async () => {
    const env = { ...tensorflow, TSRUN_BACKEND: 'tensorflow', TF_NUM_INTRAOP_THREADS: threads }
    const warm = new WarmProcess(env)
    const found = await warm.run(`
      await training.loadBackend()
      const { recordModule, ShardedMLP, sumInto, tf } = training
      const options = ${shape}
      const model = new ShardedMLP(options)
      const x = tf.randomNormal([${rows}, options.inputs], 0, 1, 'float32', 1)
      const dy = tf.randomNormal([${rows}, options.outputs], 0, 1, 'float32', 2)
      const wanted = new Map()
      function pass(halves, listener) {
        const recording = recordModule(model, x, { needsInputGradient: true })
        const dx = halves ? recording.backwardInput(dy) : recording.backward(dy, listener)
        if (halves) recording.backwardParameters(listener)
        recording.dispose()
        dx.dispose()
      }
      pass(false, sumInto(wanted))
      const places = new Map(model.parameters.map(({ name, value }) => [name, new Float32Array(value.size)]))
      const order = []
      let [reported, adds, largest] = [0, false, 0]
      const listener = Object.assign((parameter, gradient) => {
        reported++
        gradient.dispose()
      }, {
        memory: {
          placeOf: ({ name }) => ({ values: places.get(name), adds }),
          written: ({ name }) => order.push(name),
        },
      })
      const worst = (factor) => Math.max(...Array.from(wanted, ([name, gradient]) => {
        const values = gradient.dataSync()
        return places.get(name).reduce((most, y, i) => Math.max(most, Math.abs(y - factor * values[i])), 0)
      }))
      const known = tf.memory().numTensors
      pass(false, listener)
      const once = worst(1)
      adds = true
      pass(true, listener)
      return { once, twice: worst(2), reported, order, left: tf.memory().numTensors - known }`)
    warm.end()
    const { once, twice, reported, order, left } = found as {
      once: number
      twice: number
      reported: number
      order: string[]
      left: number
    }
    expect(left).toBe(0)
    if (isWritten && hasKernels) {
      expect(reported).toBe(0)
      expect(Math.max(once, twice)).toBeLessThan(1e-4)
      expect(order).toHaveLength(2 * new Set(order).size)
    } else {
      expect(reported).toBeGreaterThan(0)
      expect(order).toEqual([])
    }
  })
})
