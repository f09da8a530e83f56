import {
  Linear,
  loadBackend,
  lossOf,
  SGD,
  tf,
  wholeModel,
  type Loss,
  type Tensor,
} from '@tsrun/training'

beforeAll(() => loadBackend('wasm'))

const squares = (outputs: Tensor, labels: Tensor): Tensor =>
  tf.sum(tf.squaredDifference(outputs, labels))

/** Properties as a script without types may give them. */
const lossWith = (properties: Record<string, unknown>): Loss =>
  Object.assign((y: Tensor, labels: Tensor) => squares(y, labels), properties)

const modelWith = (loss: Loss) =>
  wholeModel(new Linear({ name: 'l', inputs: 2, outputs: 1 }), {
    loss,
    optimizer: new SGD({ learningRate: 0.01 }),
  })

const batch = () => ({ inputs: tf.ones([4, 2]), labels: tf.ones([4, 1]) })

it.each([
  ['a tensor', (labels: Tensor) => tf.sum(labels), 'a tensor of shape []'],
  ['nothing', () => undefined, 'undefined'],
  ['NaN', () => NaN, 'NaN'],
  ['Infinity', () => Infinity, 'Infinity'],
  ['a negative number', () => -1, '-1'],
  [
    'a promise of a tensor',
    (labels: Tensor) => Promise.resolve(labels),
    'a tensor of shape [4, 1]',
  ],
  ['a promise of NaN', () => Promise.resolve(NaN), 'NaN'],
])('a training step refuses a loss whose count is %s', async (_, count, value) => {
  for (const reduction of ['mean', 'sum']) {
    const model = modelWith(lossWith({ reduction, count }))
    const before = await model.parameters[0]!.value.data()
    for (const verb of ['step', 'evaluate'] as const) {
      await expect(model[verb](batch())).rejects.toMatchObject({
        code: 'ERR_TSR_ARGUMENT',
        facts: { name: 'the count of the loss', value },
      })
    }
    expect(await model.parameters[0]!.value.data()).toEqual(before)
  }
})

it.each([
  ['a tensor', (labels: Tensor) => tf.sum(labels), 'a tensor of shape []'],
  ['a promise of nothing', () => Promise.resolve(undefined), 'undefined'],
])('an evaluation refuses a loss whose countCorrect returns %s', async (_, countCorrect, value) => {
  const model = modelWith(lossWith({ reduction: 'sum', countCorrect }))
  await expect(model.evaluate(batch())).rejects.toMatchObject({
    code: 'ERR_TSR_ARGUMENT',
    facts: { name: 'the right answers of the loss', value },
  })
})

it.each([
  ['reduction', 'avg'],
  ['reduction', null],
  ['count', 4],
  ['summed', 'sum'],
  ['countCorrect', {}],
])('a model refuses a loss with the property %s: %p', (name, value) => {
  expect(() => modelWith(lossWith({ [name]: value }))).toThrow(
    expect.objectContaining({
      code: 'ERR_TSR_ARGUMENT',
      facts: expect.objectContaining({ name: `loss.${name}` }) as unknown,
    }) as Error,
  )
})

const ones = (labels: Tensor): Tensor => tf.sum(tf.onesLike(labels))

it.each([
  ['at once', (labels: Tensor) => ones(labels).dataSync()[0]!],
  ['as a promise', async (labels: Tensor) => (await ones(labels).data())[0]!],
])('a loss that counts with tensors leaks none if it returns the count %s', async (_, count) => {
  const countCorrect = (_outputs: Tensor, labels: Tensor) => count(labels)
  const model = modelWith(lossOf(squares, { count, countCorrect }))
  const data = batch()
  await model.step(data)
  const before = tf.memory().numTensors
  await model.step(data)
  expect((await model.evaluate(data)).accuracy).toBe(1)
  expect(tf.memory().numTensors).toBe(before)
})
