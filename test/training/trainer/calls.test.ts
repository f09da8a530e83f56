import { isTsrError, tsrError } from '@tsrun/core'
import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { latestCheckpoint, loadBackend, SGD, tf, trainer, type Trainer } from '@tsrun/training'
import { failure } from '../parallel/support/failure.ts'
import { alone, batchAt, dataset, quiet, recipe } from './support/small-training.ts'

beforeAll(() => loadBackend('wasm'))

const newRun = async (mesh: ProcessGroup): Promise<Trainer> =>
  await trainer(recipe, { mesh, optimizer: new SGD({ learningRate: 0.1 }) })

it.each<[string, (run: Trainer) => Promise<unknown>, RegExp]>([
  ['save', (run) => run.save('nowhere'), /^save: checkpoint: .*Rank 1 has left/],
  ['evaluate', (run) => run.evaluate(batchAt(0)), /^evaluate: sums over the replicas: /],
  ['fit', (run) => run.fit(dataset, { batch: 8, ...quiet }), /^fit: options of fit: /],
  ['step', (run) => run.step(batchAt(0)), /^step: /],
])('the error of a collective names the call of the trainer: %s', async (_, call, message) => {
  const [error] = await runWorld({ size: 2 }, async (group) => {
    const run = await newRun(group)
    const leave = (): void => {
      run.dispose()
    }
    if (group.rank === 0)
      return await call(run)
        .catch((thrown: unknown) => thrown)
        .finally(leave)
    leave()
    await group.destroy()
    return undefined
  })
  expect(isTsrError(error) && error.message).toMatch(message)
  expect((error as Error).stack).toContain('calls.test.ts')
})

it('a call about a checkpoint names a rank that is in another call', async () => {
  const [, error] = await runWorld({ size: 2 }, async (group) => {
    const run = await newRun(group)
    const call: Promise<unknown> = group.rank === 0 ? run.evaluate(dataset) : run.save('nowhere')
    const thrown: unknown = await call.catch((reason: unknown) => reason)
    run.dispose()
    await group.destroy()
    return thrown
  })
  expect(error).toEqual(failure('ERR_TSR_ARGUMENT', /^the call of rank 0 is another one; .*rank 1/))
  expect((error as Error).stack).toContain('calls.test.ts')
})

it('a call about a checkpoint names another one of its kind', async () => {
  const [saving, loading] = await runWorld({ size: 2 }, async (group) => {
    const run = await newRun(group)
    const call: Promise<unknown> = group.rank === 0 ? run.save('nowhere') : run.load('nowhere')
    const thrown: unknown = await call.catch((reason: unknown) => reason)
    run.dispose()
    await group.destroy()
    return thrown
  })
  expect(saving).toEqual(failure('ERR_TSR_ARGUMENT', /the call of rank 1 is load; expected save,/))
  expect(loading).toEqual(failure('ERR_TSR_ARGUMENT', /the call of rank 0 is save; expected load,/))
})

it.each([1, false, null, [1], {}, { value: 1, error: 2 }])(
  'a call about a checkpoint names a rank that gathers %j',
  async (gathered) => {
    const [, error] = await runWorld({ size: 2 }, async (group) => {
      try {
        if (group.rank === 0) return await group.allGatherObject(gathered)
        return await latestCheckpoint('nowhere', group)
      } catch (thrown) {
        return thrown
      }
    })
    expect(error).toEqual(failure('ERR_TSR_ARGUMENT', /^the call of rank 0 is another one/))
  },
)

it('a trainer refuses to be disposed of during a call that nobody awaits', async () => {
  const run = await newRun(await alone())
  const fitting = run.fit(dataset, { batch: 8, ...quiet })
  expect(() => {
    run.dispose()
  }).toThrow(failure('ERR_TSR_ARGUMENT', /during its fit\(\); expected `await run\.fit\(\.\.\.\)`/))
  await fitting
  run.dispose()
})

it('an error without lines of the script shows the line of the call', async () => {
  const run = await newRun(await alone())
  const batch = (): never => {
    const error = tsrError('ERR_TSR_GROUP_DESTROYED', { operation: 'barrier', group: 'world' })
    throw Object.assign(error, { stack: error.message })
  }
  const thrown: unknown = await run
    .fit(batch, { steps: 1, ...quiet })
    .catch((error: unknown) => error)
  run.dispose()
  expect((thrown as Error).message).toMatch(/^fit: barrier .*await it, before destroyProcessGroup/)
  expect((thrown as Error).stack).toMatch(/\n +at .*calls\.test\.ts:\d+:\d+/)
})

it('an error of a callback shows the line of the callback first', async () => {
  const run = await newRun(await alone())
  let before = ''
  const batch = (): never => {
    const error = tsrError('ERR_TSR_INTERNAL', { what: 'broken' })
    before = String(error.stack)
    throw error
  }
  const thrown: unknown = await run
    .fit(batch, { steps: 1, ...quiet })
    .catch((error: unknown) => error)
  run.dispose()
  const { stack = '' } = thrown as Error
  expect(before).toContain('calls.test.ts')
  expect(stack.startsWith(before)).toBe(true)
})

it('a trainer may be disposed of twice', async () => {
  using run = await newRun(await alone())
  run.dispose()
  run.dispose()
})

it('a trainer and its group are disposed of at the end of the block of `using`', async () => {
  const before = tf.memory().numTensors
  const optimizer = new SGD({ learningRate: 0.1 })
  let left: ProcessGroup
  {
    await using group = await alone()
    using run = await trainer(recipe, { mesh: group, optimizer })
    await run.step(batchAt(0))
    left = group
  }
  optimizer.dispose()
  expect(tf.memory().numTensors).toBe(before)
  expect(() => {
    left.barrierSync()
  }).toThrow(failure('ERR_TSR_GROUP_DESTROYED'))
})
