import {
  countCorrect,
  crossEntropy,
  loadBackend,
  record,
  recordLoss,
  summedCrossEntropy,
  tf,
  type Tensor,
} from '@tsrun/training'

describe.each(['wasm', 'cpu'] as const)('cross-entropy on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  const build = (rows: number, classes = 10) => ({
    // Not random numbers of TensorFlow.js, which would take seconds for the large ones.
    logits: tf.tensor2d(
      Float32Array.from({ length: rows * classes }, (_, i) => 5 * Math.sin(i * i)),
      [rows, classes],
    ),
    labels: tf.tensor1d(
      Array.from({ length: rows }, (_, i) => (i * 7) % classes),
      'int32',
    ),
  })
  const composed = (logits: Tensor, labels: Tensor) => {
    const target = tf.oneHot(labels, logits.shape[1]!)
    return tf.neg(tf.mean(tf.sum(tf.mul(tf.logSoftmax(logits), target), -1)))
  }
  const gradientOf = (loss: (logits: Tensor) => Tensor, logits: Tensor) => {
    const recording = record(loss, logits, [], { needsInputGradient: true })
    return recording.backward(tf.scalar(1), () => undefined)!
  }

  it('gives the same result when the memory grows for its gradient', () => {
    // Little is left of the 16 MiB with which the memory begins.
    const filler = tf.zeros([3, 1024, 1024])
    const { logits, labels } = build(128, 1000)
    // Half a MiB each, which stay
    const recordings = Array.from({ length: 12 }, () => recordLoss(crossEntropy, logits, labels))
    const values = recordings.map(({ value }) => value.dataSync()[0])
    expect(values).toEqual(values.map(() => values[0]))
    for (const recording of recordings) recording.dispose()
    tf.dispose([logits, labels, filler])
  })

  it('is the mean of -log softmax at the labels, and has its gradient', () => {
    const { logits, labels } = build(9)
    const value = crossEntropy(logits, labels)
    expect(value.shape).toEqual([])
    expect(value.dataSync()[0]).toBeCloseTo(composed(logits, labels).dataSync()[0]!, 5)
    const actual = gradientOf((x) => crossEntropy(x, labels), logits).dataSync()
    const expected = gradientOf((x) => composed(x, labels), logits).dataSync()
    actual.forEach((g, i) => {
      expect(g).toBeCloseTo(expected[i]!, 6)
    })
  })

  it('rounds each value of the gradient to the nearest, without bias', () => {
    const [rows, classes] = [7, 5]
    const { logits, labels } = build(rows, classes)
    const actual = gradientOf((x) => crossEntropy(x, labels), logits).dataSync()
    const scores = logits.dataSync()
    const right = labels.dataSync()
    for (let row = 0; row < rows; row++) {
      const own = [...scores.subarray(row * classes, (row + 1) * classes)]
      const exponentials = own.map((score) => Math.exp(score - Math.max(...own)))
      const total = exponentials.reduce((sum, exponential) => sum + exponential)
      exponentials.forEach((exponential, k) => {
        const exact = (exponential / total - Number(k === right[row])) * (1 / rows)
        expect(actual[row * classes + k]).toBe(Math.fround(exact))
      })
    }
  })

  it('works inside tf.grads, and scales with dy', () => {
    const { logits, labels } = build(4)
    const [gradient] = tf.grads((x: Tensor) => tf.mul(crossEntropy(x, labels), 3))([logits])
    const once = gradientOf((x) => crossEntropy(x, labels), logits).dataSync()
    gradient!.dataSync().forEach((g, i) => {
      expect(g).toBeCloseTo(3 * once[i]!, 6)
    })
  })

  it('adds up over micro-batches of unequal sizes when summed', () => {
    const { logits, labels } = build(7)
    const parts = [
      [0, 4],
      [4, 3],
    ].map(([from, count]) => ({
      logits: tf.slice(logits, [from!, 0], [count!, 10]),
      labels: tf.slice(labels, [from!], [count!]),
    }))
    const sum = parts
      .map((part) => summedCrossEntropy(part.logits, part.labels).dataSync()[0]!)
      .reduce((a, b) => a + b)
    expect(sum / 7).toBeCloseTo(crossEntropy(logits, labels).dataSync()[0]!, 5)
    const whole = gradientOf((x) => crossEntropy(x, labels), logits).dataSync()
    const first = gradientOf((x) => summedCrossEntropy(x, parts[0]!.labels), parts[0]!.logits)
    first.dataSync().forEach((g, i) => {
      expect(g / 7).toBeCloseTo(whole[i]!, 6)
    })
  })

  it('stays finite for huge logits', () => {
    const logits = tf.tensor2d([[1e30, -1e30, 0]])
    const labels = tf.tensor1d([0], 'int32')
    expect(crossEntropy(logits, labels).dataSync()[0]).toBe(0)
    const wrong = tf.tensor1d([1], 'int32')
    expect(crossEntropy(tf.tensor2d([[500, -500, 0]]), wrong).dataSync()[0]).toBeCloseTo(1000, 3)
    const gradient = gradientOf((x) => crossEntropy(x, wrong), tf.tensor2d([[500, -500, 0]]))
    expect([...gradient.dataSync()]).toEqual([1, -1, 0])
  })

  it.each([crossEntropy, summedCrossEntropy])(
    'gives the same result with and without the tape: %p',
    (loss) => {
      const { logits, labels } = build(6)
      const dy = tf.scalar(0.25)
      const untaped = recordLoss(loss, logits, labels)
      const taped = recordLoss((x, y) => loss(x, y), logits, labels)
      expect(untaped.value.dataSync()).toEqual(taped.value.dataSync())
      const [actual, expected] = [untaped, taped].map((recording) =>
        recording.backward(dy, () => undefined)!.dataSync(),
      )
      expect(actual).toEqual(expected)
    },
  )

  it('refuses a second backward pass, and a gradient that is not a scalar', () => {
    const { logits, labels } = build(3)
    const recording = recordLoss(crossEntropy, logits, labels)
    const run = (dy: Tensor) => () => recording.backward(dy, () => undefined)
    expect(run(tf.ones([2]))).toThrow(expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }))
    run(tf.scalar(1))()
    expect(run(tf.scalar(1))).toThrow(expect.objectContaining({ code: 'ERR_TSR_BACKWARD_TWICE' }))
    recording.dispose()
    recording.dispose()
  })

  it('leaks no tensor', () => {
    const { logits, labels } = build(5)
    const before = tf.memory()
    crossEntropy(logits, labels).dispose()
    tf.tidy(() => void tf.grads((x: Tensor) => crossEntropy(x, labels))([logits]))
    expect(tf.memory()).toEqual(before)
    for (const loss of [crossEntropy, (x: Tensor, y: Tensor) => crossEntropy(x, y)]) {
      const recording = recordLoss(loss, logits, labels)
      const one = tf.scalar(1)
      recording.backward(one, () => undefined)!.dispose()
      recording.dispose()
      one.dispose()
      expect(tf.memory()).toEqual(before)
    }
  })

  it('refuses shapes that do not match, and labels out of range', () => {
    const { logits } = build(2)
    const refused = [
      tf.tensor1d([1], 'int32'),
      tf.tensor1d([1, 2], 'float32'),
      tf.tensor1d([0, 10], 'int32'),
      tf.tensor1d([-1, 0], 'int32'),
      tf.tensor2d([[1, 2]], [1, 2], 'int32'),
    ]
    for (const labels of refused) {
      expect(() => crossEntropy(logits, labels)).toThrow(
        expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }),
      )
    }
  })

  it('counts correct predictions, where the first of equal logits is the prediction', () => {
    const logits = tf.tensor2d([
      [0, 2, 1],
      [5, 5, 1],
      [-3, -2, -1],
    ])
    const labels = tf.tensor1d([1, 0, 0], 'int32')
    expect(countCorrect(logits, labels)).toBe(2)
    expect(countCorrect(logits, tf.expandDims(labels, -1))).toBe(2)
  })
})
