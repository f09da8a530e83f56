import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import {
  batches,
  binaryCrossEntropy,
  dataLoader,
  examples,
  loadBackend,
  meanSquaredError,
  SGD,
  tf,
  trainer,
  type Loss,
  type Tensor,
} from '@tsrun/training'
import { failure } from '../parallel/support/failure.ts'
import { alone, batchAt, CLASSES, dataset, FEATURES, recipe } from './support/small-training.ts'

beforeAll(() => loadBackend('wasm'))

describe('a trainer', () => {
  const optimizer = new SGD({ learningRate: 0.1 })

  it('predicts outputs of inputs without labels', async () => {
    const run = await trainer(recipe, { optimizer, mesh: await alone() })
    const before = tf.memory().numTensors
    const rows = [
      [1, 2, 3, 4, 5],
      [-1, 0, 1, 0, -1],
    ]
    const scores = await run.predict(rows)
    const x = tf.tensor2d(rows)
    const same = await run.predict(x)
    const expected = tf.tidy(() => recipe.build().forward(x).dataSync())
    expect(scores.shape).toEqual([2, CLASSES])
    expect([...scores.dataSync()]).toEqual([...expected])
    expect([...same.dataSync()]).toEqual([...expected])
    tf.dispose([scores, same, x])
    run.dispose()
    expect(tf.memory().numTensors).toBeLessThanOrEqual(before)
  })

  it.each<[string, unknown, RegExp]>([
    [
      'a longer row',
      [
        [1, 2],
        [3, 4, 5],
      ],
      /row 2 of inputs is a list of 3; expected a list of 2/,
    ],
    [
      'a shorter row',
      [[1, 2], [3, 4], [5]],
      /row 3 of inputs is a list of 1; expected a list of 2/,
    ],
    [
      'a row of another depth',
      [
        [1, 2],
        [3, [4]],
      ],
      /row 2 of inputs is a list of 1; .* a number/,
    ],
    ['a row that is a number', [[1, 2], 3], /row 2 of inputs is 3; expected a list of 2/],
    [
      'ragged lists in a row',
      [
        [[1], [2]],
        [[3], [4, 5]],
      ],
      /row 2 of inputs is a list of 2/,
    ],
    ['typed arrays of several lengths', [Float32Array.of(1, 2), Float32Array.of(3)], /row 2/],
    [
      'NaN',
      [
        [1, 2],
        [3, NaN],
      ],
      /row 2 of inputs is NaN; expected a finite number/,
    ],
    ['a number beyond float32', [[1, 1e39]], /row 1 of inputs is 1e\+39; expected a finite number/],
    ['a text', [[1, '2']], /row 1 of inputs is "2"; expected a number/],
    ['undefined', [[1, undefined]], /row 1 of inputs is undefined; expected a number/],
    [
      'null',
      [
        [1, 2],
        [null, 2],
      ],
      /row 2 of inputs is null; expected a number/,
    ],
    ['an object as a row', [[1, 2], { x: 1, y: 2 }], /row 2 .*the keys x, y; expected a list of 2/],
    ['an empty row', [[]], /row 1 of inputs is an empty list/],
    ['endless lists', JSON.parse('['.repeat(20_000) + ']'.repeat(20_000)), /row 1.*deeper/],
    ['no rows', [], /inputs is a list of 0; expected a list of rows/],
    ['a flat list', [1, 2], /inputs is a flat list of 2 values, without rows/],
    ['a flat typed array', Float32Array.of(1, 2), /inputs is a list of 2; expected a list of rows/],
    ['an object', { inputs: [[1, 2]] }, /inputs is an object with the keys inputs/],
    ['a number', 5, /inputs is 5/],
    ['nothing', undefined, /inputs is undefined/],
  ])('refuses to predict for %s', async (_, rows, message) => {
    const run = await trainer(recipe, { mesh: await alone() })
    const before = tf.memory().numTensors
    const refused = failure('ERR_TSR_ARGUMENT', message)
    await expect(run.predict(rows as number[][])).rejects.toEqual(refused)
    expect(tf.memory().numTensors).toBe(before)
    run.dispose()
  })

  it('predicts for rows that are typed arrays', async () => {
    const run = await trainer(recipe, { mesh: await alone() })
    const rows = [
      [1, 2, 3, 4, 5],
      [-1, 0, 1, 0, -1],
    ]
    const [wanted, scores] = [
      await run.predict(rows),
      await run.predict(rows.map((row) => Float32Array.from(row))),
    ]
    expect([...scores.dataSync()]).toEqual([...wanted.dataSync()])
    tf.dispose([scores, wanted])
    run.dispose()
  })

  it('evaluates a data set as fit does, and in batches of any size', async () => {
    const evaluated = await runWorld({ size: 2 }, async (group) => {
      const run = await trainer(recipe, { mesh: group })
      const { inputs, labels } = batchAt(0, dataset.size) as { inputs: never; labels: never }
      const columns = examples({ inputs: { values: inputs, shape: [FEATURES] }, labels })
      const made = () => batches(dataset, { batch: 50, shuffle: false, share: run.share })
      const all = [
        await run.evaluate(made()),
        await run.evaluate(made),
        await run.evaluate(dataset),
        await run.evaluate(columns),
        await run.evaluate(() => columns),
        await run.evaluate(() => Promise.resolve(made())),
        await run.evaluate(dataLoader(dataset, { batch: 50, shuffle: false, share: run.share })),
      ]
      const small = await run.evaluate(columns, { batch: 7 })
      run.dispose()
      return { all, small }
    })
    for (const { all, small } of evaluated) {
      for (const each of all) expect(each).toEqual(all[0])
      expect(small.examples).toBe(dataset.size)
      expect(small.loss).toBeCloseTo(all[0]!.loss, 5)
    }
  })

  it.each<[unknown, RegExp]>([
    [undefined, /data is undefined; expected a data set, batches/],
    [{}, /data is .*; expected a data set, batches/],
    [5, /data is 5/],
    [() => undefined, /data is undefined; expected a data set, batches/],
  ])('refuses to evaluate %p', async (data, message) => {
    const run = await trainer(recipe, { mesh: await alone() })
    const refused = failure('ERR_TSR_ARGUMENT', message)
    await expect(run.evaluate(data as [])).rejects.toEqual(refused)
    run.dispose()
  })

  it.each([1, 2])(
    'returns an accuracy only if its loss counts correct answers, on %i stages',
    async (pp) => {
      const evaluated = await runWorld({ size: 2 }, async (group) => {
        const mesh = await initDeviceMesh({ dp: 2 / pp, pp }, group)
        const { inputs } = batchAt(0)
        const evaluate = async (loss: Loss, value: number) => {
          const run = await trainer(recipe, { mesh, loss })
          const labels = new Float32Array(8 * CLASSES).fill(value)
          const shapes = { inputs: [8, FEATURES], labels: [8, CLASSES] }
          const made = { inputs: inputs as Float32Array, labels }
          const part = (name: 'inputs' | 'labels') => () => tf.tensor(made[name], shapes[name])
          const found = await run.evaluate({
            size: 8,
            inputs: part('inputs'),
            labels: part('labels'),
          })
          run.dispose()
          return found.accuracy
        }
        const answers = [
          await evaluate(binaryCrossEntropy, 0),
          await evaluate(binaryCrossEntropy, 1),
        ]
        const counting: Loss = Object.assign((outputs: Tensor) => tf.mean(outputs), {
          reduction: 'mean' as const,
          countCorrect: async (outputs: Tensor, labels: Tensor) =>
            (await outputs.data()).length - (await labels.data()).length / 2,
        })
        expect(await evaluate(counting, 0)).toBeCloseTo(1 / 2)
        return { squares: await evaluate(meanSquaredError, 0), answers }
      })
      for (const { squares, answers } of evaluated) {
        expect(squares).toBeNaN()
        // Each score is on one of the two sides, so they add up.
        expect(answers[0]! + answers[1]!).toBeCloseTo(1)
        expect(Math.max(...answers)).toBeGreaterThan(0)
      }
    },
  )
})
