import {
  binaryCrossEntropy,
  countTopK,
  crossEntropy,
  crossEntropyWith,
  loadBackend,
  meanSquaredError,
  perplexity,
  recordLoss,
  summedBinaryCrossEntropy,
  summedMeanSquaredError,
  tf,
  type Loss,
  type Tensor,
} from '@tsrun/training'

const scores = [2, -1, 0.5, 0, 3, -20, 1, 1, 1, -0.5, 0.25, 40]
const logits = () => tf.tensor2d(scores, [4, 3])
const classes = (...labels: number[]) => tf.tensor1d(labels, 'int32')

/** The loss, and the gradient of the outputs. */
function evaluate(loss: Loss, outputs: Tensor, labels: Tensor): [number, number[]] {
  const before = tf.memory().numTensors
  const pass = recordLoss(loss, outputs, labels)
  const one = tf.scalar(1)
  const gradient = pass.backward(one, () => undefined)!
  const result: [number, number[]] = [pass.value.dataSync()[0]!, [...gradient.dataSync()]]
  const onTape = tf.tidy(() => loss(outputs, labels).dataSync()[0])
  expect(onTape).toBe(result[0])
  pass.dispose()
  tf.dispose([one, gradient])
  expect(tf.memory().numTensors).toBe(before)
  return result
}

/** In double precision: the loss by its formula, and the slopes of the formula. */
function expectFormula(
  loss: Loss,
  outputs: readonly number[],
  shape: number[],
  labels: Tensor,
  formula: (y: readonly number[]) => number,
): void {
  const [value, gradient] = evaluate(loss, tf.tensor([...outputs], shape), labels)
  expect(value / formula(outputs)).toBeCloseTo(1, 6)
  gradient.forEach((slope, i) => {
    const at = (change: number) => formula(outputs.map((y, k) => (k === i ? y + change : y)))
    expect(slope).toBeCloseTo((at(1e-5) - at(-1e-5)) / 2e-5, 4)
  })
}

/** -log p(k) of a row of three scores */
function surprise(y: readonly number[], row: number, k: number): number {
  const part = y.slice(3 * row, 3 * row + 3)
  const largest = Math.max(...part)
  const total = part.reduce((sum, score) => sum + Math.exp(score - largest), 0)
  return Math.log(total) - (part[k]! - largest)
}

/** A backend that tsrun does not know, so that it reads no values synchronously. */
function registerUnknown(): void {
  tf.copyRegisteredKernels('cpu', 'unknown')
  const { constructor } = tf.findBackend('cpu') as unknown as { constructor: new () => never }
  tf.registerBackend('unknown', () => Object.assign(new constructor(), { firstUse: false }))
}

describe('on a device', () => {
  beforeAll(async () => {
    await loadBackend('cpu')
    registerUnknown()
    await tf.setBackend('unknown')
  })

  it('cross-entropy excludes classes with the score -Infinity', () => {
    const outputs = tf.tensor2d([2, -Infinity, 0.5, 0, 3, -Infinity], [2, 3])
    for (const loss of [
      crossEntropy,
      crossEntropyWith({}),
      crossEntropyWith({ ignoreIndex: -100 }),
    ]) {
      const [value, gradient] = evaluate(loss, outputs, classes(0, 1))
      expect(value).toBeCloseTo(0.125_000_315, 6)
      expect(gradient[0]).toBeCloseTo(-0.091_212_763, 6)
      expect(gradient[5]).toBeCloseTo(0, 6)
    }
  })

  it('cross-entropy leaves out ignored rows, whatever their scores are', () => {
    const outputs = tf.tensor2d([-Infinity, 1, 2, NaN, 1, 2, Infinity, 5, 0], [3, 3])
    for (const reduction of ['mean', 'sum'] as const) {
      const loss = crossEntropyWith({ ignoreIndex: -100, reduction })
      const [value, gradient] = evaluate(loss, outputs, classes(2, -100, -100))
      expect(value).toBeCloseTo(0.313_261_688, 6)
      expect(gradient[1]).toBeCloseTo(0.268_941_421, 6)
      expect(gradient.slice(3).map(Math.abs)).toEqual([0, 0, 0, 0, 0, 0])
    }
  })
})

describe.each(['wasm', 'cpu'] as const)('on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  it('meanSquaredError is the mean of squares, or the sum of the means of the examples', () => {
    const targets = tf.tensor2d([1, 1, 1, 0, 0, 0, 2, 2, 2, 3, 3, 3], [4, 3])
    const wanted = [...targets.dataSync()]
    const total = (y: readonly number[]) => y.reduce((sum, v, i) => sum + (v - wanted[i]!) ** 2, 0)
    expectFormula(meanSquaredError, scores, [4, 3], targets, (y) => total(y) / 12)
    expectFormula(summedMeanSquaredError, scores, [4, 3], targets, (y) => total(y) / 3)
  })

  it('binaryCrossEntropy is the cross-entropy of sigmoids, without overflow', () => {
    const answers = [1, 0, 0.25, 1, 1, 1, 0, 1, 0, 0, 0, 0]
    const targets = tf.tensor2d(answers, [4, 3])
    const log = (y: number) => (y > 0 ? Math.log1p(Math.exp(-y)) : Math.log1p(Math.exp(y)) - y)
    const total = (y: readonly number[]) =>
      y.reduce((sum, v, i) => sum + answers[i]! * log(v) + (1 - answers[i]!) * log(-v), 0)
    expectFormula(binaryCrossEntropy, scores, [4, 3], targets, (y) => total(y) / 12)
    expectFormula(summedBinaryCrossEntropy, scores, [4, 3], targets, (y) => total(y) / 3)
    expect(binaryCrossEntropy.countCorrect!(logits(), targets)).toBe(5)
    const yes = tf.tensor2d([1, 0, 0], [3, 1], 'bool')
    expect(evaluate(binaryCrossEntropy, tf.zeros([3, 1]), yes)[0]).toBeCloseTo(Math.log(2), 6)
  })

  it.each([meanSquaredError, binaryCrossEntropy])('%p refuses to broadcast targets', (loss) => {
    expect(() => recordLoss(loss, tf.zeros([4, 1]), tf.zeros([4]))).toThrow(
      /a tensor of shape \[4\]; expected the shape of the outputs, \[4, 1\]/,
    )
  })

  it.each([crossEntropy, meanSquaredError, binaryCrossEntropy])(
    '%p refuses a third argument',
    (loss) => {
      const untyped = loss as (...args: unknown[]) => Tensor
      expect(() => untyped(logits(), logits(), 'sum')).toThrow(
        /the third argument of \w+ is "sum"; expected none; call \w+\.summed for the sum/,
      )
    },
  )

  it('crossEntropyWith excludes ignored labels from the loss and the mean', () => {
    const labels = classes(0, -100, 2, 1)
    const loss = crossEntropyWith({ ignoreIndex: -100 })
    const formula = (y: readonly number[]) =>
      (surprise(y, 0, 0) + surprise(y, 2, 2) + surprise(y, 3, 1)) / 3
    expectFormula(loss, scores, [4, 3], labels, formula)
    const summed = crossEntropyWith({ ignoreIndex: -100, reduction: 'sum' })
    expect(summed.reduction).toBe('sum')
    expectFormula(summed, scores, [4, 3], labels, (y) => 3 * formula(y))
    const nothing = evaluate(loss, logits(), classes(-100, -100, -100, -100))
    expect(nothing).toEqual([0, scores.map(() => 0)])
    expect(() => loss(logits(), classes(0, -1, 2, 1))).toThrow(/a label is -1; expected 0 to 2/)
  })

  it('crossEntropyWith sums over the labels that are not ignored, and counts them', async () => {
    const [outputs, labels] = [logits(), classes(0, -100, 2, 1)]
    const tokens = [tf.reshape(outputs, [2, 2, 3]), tf.reshape(labels, [2, 2])] as const
    const loss = crossEntropyWith({ ignoreIndex: -100, labelSmoothing: 0.1 })
    const [sum] = evaluate(loss.summed!, ...tokens)
    expect(sum).toBeCloseTo(3 * evaluate(loss, ...tokens)[0], 5)
    expect(sum).toBeCloseTo(evaluate(loss.summed!, outputs, labels)[0], 5)
    for (const each of [loss, loss.summed!]) expect(await each.count!(tokens[1])).toBe(3)
    expect(await loss.countCorrect!(outputs, labels)).toMatchObject({ of: 3 })
  })

  it('crossEntropyWith smooths labels', () => {
    const labels = classes(0, 1, 2, 1)
    const loss = crossEntropyWith({ labelSmoothing: 0.3 })
    const formula = (y: readonly number[]) =>
      [0, 1, 2, 1].reduce((sum, label, row) => {
        const all = [0, 1, 2].reduce((total, k) => total + surprise(y, row, k), 0)
        return sum + (0.7 * surprise(y, row, label) + 0.1 * all) / 4
      }, 0)
    expectFormula(loss, scores, [4, 3], labels, formula)
  })

  it.each([crossEntropy, crossEntropyWith({}), crossEntropyWith({ ignoreIndex: -100 })])(
    'cross-entropy excludes classes with the score -Infinity (%#)',
    (loss) => {
      const outputs = tf.tensor2d([2, -Infinity, 0.5, 0, 3, -Infinity], [2, 3])
      const [value, gradient] = evaluate(loss, outputs, classes(0, 1))
      // (log(1 + e^-1.5) + log(1 + e^-3)) / 2
      expect(value).toBeCloseTo(0.125_000_315, 6)
      const slopes = [-0.091_212_763, 0, 0.091_212_763, 0.023_712_937, -0.023_712_937, 0]
      gradient.forEach((slope, i) => {
        expect(slope).toBeCloseTo(slopes[i]!, 6)
      })
      expect(evaluate(loss, outputs, classes(1, 1))[0]).toBe(Infinity)
    },
  )

  it('smoothed labels give classes with the score -Infinity an infinite loss', () => {
    const outputs = tf.tensor2d([2, -Infinity, 0.5], [1, 3])
    expect(evaluate(crossEntropyWith({ labelSmoothing: 0.1 }), outputs, classes(0))[0]).toBe(
      Infinity,
    )
  })

  it('crossEntropyWith without options is crossEntropy', () => {
    const labels = classes(0, 1, 2, 1)
    const [value, gradient] = evaluate(crossEntropyWith({}), logits(), labels)
    const [wanted, slopes] = evaluate(crossEntropy, logits(), labels)
    expect(value).toBeCloseTo(wanted, 6)
    gradient.forEach((slope, i) => {
      expect(slope).toBeCloseTo(slopes[i]!, 6)
    })
    expect(() => crossEntropyWith({ ignore: 3 } as never)).toThrow(/the unknown key "ignore"/)
    expect(() => crossEntropyWith({ labelSmoothing: 2 })).toThrow(/labelSmoothing is 2/)
  })

  it.each([crossEntropy, crossEntropyWith({})])('%p says that labels must be int32', (loss) => {
    expect(() => loss(logits(), tf.tensor1d([0, 1, 2, 1]))).toThrow(
      /the dtype of the labels of crossEntropy is float32; expected int32.*tf.cast/,
    )
  })

  it('countTopK counts labels among the largest scores', () => {
    const labels = classes(1, 0, 2, 1)
    expect([1, 2, 3].map((k) => countTopK(logits(), labels, k))).toEqual([1, 3, 4])
    expect(() => countTopK(logits(), labels, 0)).toThrow(/k is 0/)
  })

  it('countTopK leaves out ignored labels and logits that are NaN', () => {
    const labels = classes(1, -100, 3, 1)
    expect(countTopK(logits(), labels, 3)).toBe(2)
    expect(countTopK(tf.fill([1, 3], NaN), classes(1), 3)).toBe(0)
  })

  it('perplexity is the number of equally likely classes', () => {
    const [loss] = evaluate(crossEntropy, tf.zeros([2, 7]), classes(3, 4))
    expect(perplexity(loss)).toBeCloseTo(7, 4)
  })
})
