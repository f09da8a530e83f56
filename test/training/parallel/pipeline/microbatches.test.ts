import { jest } from '@jest/globals'
import { loadBackend, SGD, tf, type Batch, type Tensor } from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { examples, onRanks } from '../support/small-pipeline.ts'

const training = { microbatches: 2, optimizer: new SGD({ learningRate: 0.1 }) }
let inputs: Tensor
let labels: Tensor

beforeAll(async () => {
  await loadBackend('wasm')
  const { inputs: x, labels: y } = examples(8)
  ;[inputs, labels] = [x(), y()]
})

describe('an invalid batch', () => {
  const NONE = 'expected one object { inputs, labels }, of tensors or functions'

  it.each<[string, () => unknown, RegExp]>([
    ['only the inputs', () => inputs, RegExp(`batch is an instance of Tensor; ${NONE}`)],
    ['a function', () => examples, RegExp(`batch is a function; ${NONE}`)],
    ['nothing', () => undefined, RegExp(`batch is undefined; ${NONE}`)],
    [
      'other names',
      () => ({ x: inputs, y: labels }),
      RegExp(`batch is an object with x, y; ${NONE}`),
    ],
    ['a list', () => [inputs, labels], RegExp(`batch is an array of 2; ${NONE}`)],
    [
      'arrays',
      () => ({ size: 8, inputs: new Float32Array(64), labels: new Int32Array(8) }),
      /batch.inputs is an instance of Float32Array; expected a tensor, or a function that makes/,
    ],
  ])('is refused on every rank, and the next one trains: %s', async (_, make, message) => {
    const losses = await onRanks(3, training, async (pipe, group) => {
      const sent = [jest.spyOn(group, 'isend'), jest.spyOn(group, 'broadcast')]
      const gathered = jest.spyOn(group, 'allGatherObject')
      for (const call of ['step', 'forwardBackward', 'evaluate'] as const) {
        await expect(pipe[call](make() as Batch)).rejects.toEqual(
          failure('ERR_TSR_ARGUMENT', message),
        )
      }
      for (const call of [...sent, gathered]) expect(call).not.toHaveBeenCalled()
      return (await pipe.step({ inputs, labels })).loss
    })
    expect(losses[0]).toBeGreaterThan(0)
    expect(losses).toEqual([losses[0], losses[0], losses[0]])
  })

  it('is refused if a function returns no tensor', async () => {
    const before = tf.memory().numTensors
    await onRanks(1, training, async (pipe) => {
      const promise = { ...examples(8), inputs: () => Promise.resolve(inputs) }
      await expect(pipe.step(promise as unknown as Batch)).rejects.toEqual(
        failure('ERR_TSR_ARGUMENT', /batch.inputs is a function that made a promise/),
      )
    })
    expect(tf.memory().numTensors).toBe(before)
  })
})

describe('a pipeline rank', () => {
  it('may omit the part of a batch that it does not read', async () => {
    const parts = [{ inputs }, {}, { labels }]
    const run = (of: (rank: number) => object) =>
      onRanks(3, training, async (pipe, { rank }) => {
        return (await pipe.evaluate({ size: 8, ...of(rank) } as Batch)).loss
      })
    expect(await run((rank) => parts[rank]!)).toEqual(await run(() => ({ inputs, labels })))
  })

  it('must have the part of a batch that it reads', async () => {
    await onRanks(1, training, async (pipe) => {
      for (const batch of [{ inputs }, { size: 8, labels }]) {
        await expect(pipe.step(batch as unknown as Batch)).rejects.toEqual(
          failure('ERR_TSR_ARGUMENT', /batch is an object with .*; expected one object/),
        )
      }
    })
  })
})
