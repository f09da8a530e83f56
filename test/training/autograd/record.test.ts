import {
  crossEntropy,
  loadBackend,
  record,
  recordLoss,
  recordModule,
  tf,
  type Parameter,
  type Tensor,
} from '@tsrun/training'

const both = { needsInputGradient: true }

function parameter(name: string, shape: [number, number], seed: number): Parameter {
  return { name, shape, value: tf.randomNormal(shape, 0, 0.3, 'float32', seed) }
}

/** Runs a recording backward and collects what it reports. */
function collect(recording: ReturnType<typeof record>, dy: Tensor) {
  const calls: [name: string, gradient: Tensor][] = []
  const input = recording.backward(dy, ({ name }, gradient) => {
    calls.push([name, gradient])
  })
  return { input, calls, gradients: new Map(calls) }
}

describe.each(['wasm', 'cpu'] as const)('record on %s', (backend) => {
  let x: Tensor, dy: Tensor, first: Parameter, second: Parameter

  /** Uses `first` twice, `second` once, with a branch and a sum in between. */
  const network = (input: Tensor, w = first.value, v = second.value): Tensor => {
    const h = tf.relu(tf.matMul(input, w))
    const branch = tf.mul(tf.sigmoid(h), tf.matMul(h, w))
    return tf.matMul(tf.add(branch, h), v)
  }

  beforeAll(async () => {
    await loadBackend(backend)
    x = tf.randomNormal([5, 6], 0, 1, 'float32', 1)
    dy = tf.randomNormal([5, 3], 0, 1, 'float32', 2)
    first = parameter('first', [6, 6], 3)
    second = parameter('second', [6, 3], 4)
    record((h) => h, x, [], both).dispose()
  })

  afterAll(() => {
    for (const tensor of [x, dy, first.value, second.value]) tensor.dispose()
  })

  const reference = () => tf.grads(network)([x, first.value, second.value], dy)

  it('gives the output and the gradients of tf.grads, with the same bits', () => {
    const recording = record(network, x, [first, second], both)
    expect(recording.value.dataSync()).toEqual(network(x).dataSync())
    const { input, gradients } = collect(recording, dy)
    const [dx, dw, dv] = reference()
    expect(input!.dataSync()).toEqual(dx!.dataSync())
    expect(gradients.get('first')!.dataSync()).toEqual(dw!.dataSync())
    expect(gradients.get('second')!.dataSync()).toEqual(dv!.dataSync())
    recording.dispose()
  })

  it('runs its backward pass in halves with the same bits, and leaks nothing', () => {
    const before = tf.memory().numTensors
    const whole = record(network, x, [first, second], both)
    const { input, gradients, calls } = collect(whole, dy)
    const halved = record(network, x, [first, second], both)
    const start = tf.clone(dy)
    const dx = halved.backwardInput(start)!
    // the second half may come when the gradient that it started from is gone
    start.dispose()
    expect(dx.dataSync()).toEqual(input!.dataSync())
    const names: string[] = []
    halved.backwardParameters(({ name }, gradient) => {
      names.push(name)
      expect(gradient.dataSync()).toEqual(gradients.get(name)!.dataSync())
      gradient.dispose()
    })
    expect(names).toEqual(calls.map(([name]) => name))
    expect(() => {
      halved.backwardParameters(() => undefined)
    }).toThrow('twice')
    tf.dispose([dx, input!, ...gradients.values()])
    halved.dispose()
    whole.dispose()
    const given = record(network, x, [first, second], both)
    given.backwardInput(dy)!.dispose()
    given.dispose()
    expect(tf.memory().numTensors).toBe(before)
  })

  it('runs the whole backward pass in the second half if no input gradient is requested', () => {
    const recording = record(network, x, [first, second], { needsInputGradient: false })
    expect(recording.backwardInput(dy)).toBeUndefined()
    const [, dw, dv] = reference()
    const gradients = new Map<string, Tensor>()
    recording.backwardParameters(({ name }, gradient) => gradients.set(name, gradient))
    expect(gradients.get('first')!.dataSync()).toEqual(dw!.dataSync())
    expect(gradients.get('second')!.dataSync()).toEqual(dv!.dataSync())
    recording.dispose()
  })

  it('reports each parameter once, last used first, and a tied one when its sum is complete', () => {
    const recording = record(network, x, [first, second], both)
    const { calls } = collect(recording, dy)
    expect(calls.map(([name]) => name)).toEqual(['second', 'first'])
    recording.dispose()
  })

  it('allows any number of recordings in flight, run backward in any order', () => {
    const inputs = [1, 2, 3].map((seed) => tf.randomNormal([5, 6], 0, 1, 'float32', seed))
    const recordings = inputs.map((input) => record(network, input, [first, second], both))
    for (const i of [1, 2, 0]) {
      const { input, gradients } = collect(recordings[i]!, dy)
      const [dx, dw] = tf.grads(network)([inputs[i]!, first.value, second.value], dy)
      expect(input!.dataSync()).toEqual(dx!.dataSync())
      expect(gradients.get('first')!.dataSync()).toEqual(dw!.dataSync())
      recordings[i]!.dispose()
    }
  })

  it('leaks no tensor, inside or outside of tf.tidy', () => {
    const before = tf.memory()
    const pass = () => {
      const recording = record(network, x, [first, second], both)
      const { input, gradients } = collect(recording, dy)
      recording.dispose()
      return [input!, ...gradients.values()]
    }
    for (const run of [pass, () => tf.tidy(pass)]) {
      const tensors = run()
      expect(tensors.every((tensor) => !tensor.isDisposed)).toBe(true)
      tf.dispose(tensors)
      expect(tf.memory()).toEqual(before)
    }
    record(network, x, [first, second], both).dispose()
    expect(tf.memory()).toEqual(before)
  })

  it('keeps only the tensors that the backward pass needs', () => {
    const before = tf.memory().numTensors
    const recording = record(
      (input) => tf.matMul(tf.exp(tf.tanh(input)), second.value),
      x,
      [second],
      { needsInputGradient: false },
    )
    // The output, and matMul's two operands.
    expect(tf.memory().numTensors - before).toBe(3)
    recording.dispose()
    expect(tf.memory().numTensors).toBe(before)
  })

  it('survives the replacement of a parameter between the passes', () => {
    const tied: Parameter = { ...second, value: tf.clone(second.value) }
    const recording = record((input) => tf.matMul(input, tied.value), x, [tied], both)
    tied.value.dispose()
    tied.value = tf.zeros([6, 3])
    const { input } = collect(recording, dy)
    expect(input!.dataSync()).toEqual(tf.matMul(dy, second.value, false, true).dataSync())
    recording.dispose()
  })

  it('returns no input gradient if none is requested', () => {
    const recording = record(network, x, [first], { needsInputGradient: false })
    const { input, calls } = collect(recording, dy)
    expect(input).toBeUndefined()
    expect(calls.map(([name]) => name)).toEqual(['first'])
    recording.dispose()
  })

  it('gives an unused input zero gradients, and does not report unused parameters', () => {
    const recording = record(() => tf.square(second.value), x, [first, second], both)
    const { input, calls } = collect(recording, tf.ones([6, 3]))
    expect(input!.dataSync()).toEqual(new Float32Array(30))
    expect(calls.map(([name]) => name)).toEqual(['second'])
    recording.dispose()
  })

  it('records the identity function without taking ownership of its input or dy', () => {
    const recording = record((input) => input, x, [], both)
    const { input } = collect(recording, tf.onesLike(x))
    expect(input!.dataSync()).toEqual(new Float32Array(30).fill(1))
    input!.dispose()
    recording.dispose()
    expect(x.isDisposed).toBe(false)
  })

  it('copies gradients that other objects own', () => {
    const passOn = tf.customGrad((input) => ({
      value: tf.mul(input as Tensor, 1),
      gradFunc: (gradient: Tensor) => gradient,
    }))
    const before = tf.memory().numTensors
    const recording = record(
      (input) => tf.add(passOn(passOn(input)), tf.matMul(passOn(input), first.value)),
      x,
      [],
      both,
    )
    const ones = tf.onesLike(x)
    const { input } = collect(recording, ones)
    const [expected] = tf.grads((h, w) => tf.add(h, tf.matMul(h, w)))([x, first.value], ones)
    expect(input!.dataSync()).toEqual(expected!.dataSync())
    expect(ones.isDisposed).toBe(false)
    recording.dispose()
    tf.dispose([ones, input!, expected!])
    expect(tf.memory().numTensors).toBeLessThanOrEqual(before + 1)
  })

  it('works after a forward pass that threw', () => {
    const before = tf.memory()
    const broken = () =>
      record(
        (input) => {
          network(input)
          throw new Error('broken layer')
        },
        x,
        [first],
        both,
      )
    expect(broken).toThrow('broken layer')
    expect(tf.memory()).toEqual(before)
    const recording = record(network, x, [first], both)
    recording.dispose()
    expect(tf.memory()).toEqual(before)
  })

  it('refuses a recording inside another one', () => {
    const nested = () => record((h) => record(network, h, [], both).value, x, [], both)
    expect(nested).toThrow(expect.objectContaining({ code: 'ERR_TSR_NESTED_RECORDING' }))
    const outer = record(network, x, [], both)
    outer.dispose()
  })

  it('refuses disposed tensors', () => {
    const module = { parameters: [], forward: (h: Tensor) => h }
    const gone = tf.zeros([2, 3])
    gone.dispose()
    const refusal = /is a disposed tensor; expected a live one: dispose a recording/
    expect(() => recordModule(module, gone, both)).toThrow(refusal)
    const labels = tf.zeros([2], 'int32')
    expect(() => recordLoss(crossEntropy, gone, labels)).toThrow(refusal)
    labels.dispose()
    const recording = record((h) => h, x, [], both)
    expect(() => recording.backward(gone, () => undefined)).toThrow(refusal)
    recording.dispose()
  })

  it('refuses a second backward pass, and one after dispose', () => {
    const recording = record(network, x, [], both)
    collect(recording, dy)
    const again = () => recording.backward(dy, () => undefined)
    expect(again).toThrow(expect.objectContaining({ code: 'ERR_TSR_BACKWARD_TWICE' }))
    recording.dispose()
    recording.dispose()
    const freed = record(network, x, [], both)
    freed.dispose()
    expect(() => freed.backward(dy, () => undefined)).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_BACKWARD_TWICE' }),
    )
  })

  it('names the operation that has no gradient', () => {
    const recording = record((input) => tf.topk(tf.exp(input), 2).values, x, [], both)
    const run = () => recording.backward(tf.ones([5, 2]), () => undefined)
    expect(run).toThrow(expect.objectContaining({ code: 'ERR_TSR_NO_GRADIENT' }))
    expect(run).toThrow()
    recording.dispose()
  })
})
