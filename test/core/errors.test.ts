import { createContext, runInContext } from 'node:vm'
import {
  distanceFromCause,
  isTsrError,
  reviveTsrError,
  shown,
  tsrError,
  type SerializedTsrError,
} from '@tsrun/core'

const make = (): ReturnType<typeof tsrError> =>
  tsrError(
    'ERR_TSR_ARGUMENT',
    { name: 'rank', value: -1, expected: 'at least 0' },
    { cause: new Error('why') },
  )

describe('an error of tsrun', () => {
  it('says what happened, where, and what to do', () => {
    expect(make()).toMatchObject({
      name: 'TsrError',
      code: 'ERR_TSR_ARGUMENT',
      category: 'user',
      message:
        'rank is -1; expected at least 0. Fix the argument at the first line of your script in the stack trace. (ERR_TSR_ARGUMENT)',
      advice: 'Fix the argument at the first line of your script in the stack trace.',
      facts: { name: 'rank', value: -1, expected: 'at least 0' },
      cause: { message: 'why' },
    })
  })

  it('has a stack that begins with its caller', () => {
    const [, first] = make().stack!.split('\n')
    expect(first).toContain('errors.test.ts')
  })

  it('is the same after passing a thread, a process or a file', () => {
    const error = make()
    for (const copy of [structuredClone(error.toJSON()), JSON.parse(JSON.stringify(error))]) {
      const revived = reviveTsrError(copy as SerializedTsrError)
      expect({ ...revived.toJSON() }).toEqual(error.toJSON())
      expect(revived.stack).toBe(error.stack)
      expect(revived.category).toBe('user')
    }
  })

  it('can be restored even if this version does not know its code', () => {
    const revived = reviveTsrError({
      code: 'ERR_TSR_OF_TOMORROW' as never,
      message: 'something new',
      facts: {},
      stack: '',
    })
    expect(revived).toMatchObject({ message: 'something new', category: 'internal' })
  })
})

describe('isTsrError', () => {
  it('recognizes errors of any realm by their code', () => {
    const foreign: unknown = runInContext(
      "Object.assign(new Error('x'), { code: 'ERR_TSR_TIMEOUT' })",
      createContext(),
    )
    expect(isTsrError(make())).toBe(true)
    expect(isTsrError(foreign)).toBe(true)
  })

  it.each([
    undefined,
    null,
    'ERR_TSR_TIMEOUT',
    new Error('ERR_TSR_TIMEOUT'),
    { code: 'ENOENT' },
    { code: 'toString' },
    { code: 5 },
  ])('returns false for %p', (value) => {
    expect(isTsrError(value)).toBe(false)
  })
})

describe('the advice about a wrong argument', () => {
  const advise = (value: unknown, expected: string): string =>
    tsrError('ERR_TSR_ARGUMENT', { name: 'x', value: shown(value), expected }).advice
  class Tensor {
    readonly shape = []
  }
  class OperationWork {
    readonly elapsed = 0
  }

  it.each<[string, unknown, string, string]>([
    ['a promise', Promise.resolve(1), 'a number', '`await` it: the call needs the value'],
    ['an operation', new OperationWork(), 'a typed array', '`await` it: this is an operation'],
    ['a plain array', [1, 2], 'a typed array', '`Float32Array.from(values)`'],
    ['a tensor', new Tensor(), 'an array of numbers', '`await tensor.data()`'],
    ['a string for a number', '4', 'a number from 1', '`Number()`'],
    ['a function', () => 1, 'a number', 'Call the function'],
    ['nothing', undefined, 'a number', 'the variable or property that is passed is undefined'],
    ['NaN', NaN, 'a number from 1', 'of a variable that is not set is NaN'],
  ])('fits the argument: %s', (_, value, expected, words) => {
    expect(advise(value, expected)).toContain(words)
  })

  it('does not mention types if only the value is wrong', () => {
    expect(advise([1, 2], 'an array of 3')).toMatch(/^Fix the argument/)
    expect(advise('4', 'one of sgd, adam')).toMatch(/^Fix the argument/)
  })

  it('is the same after passing a thread', () => {
    const error = tsrError('ERR_TSR_ARGUMENT', { name: 'x', value: 'a promise', expected: 'a 1' })
    expect(reviveTsrError(error.toJSON()).advice).toBe(error.advice)
  })
})

describe('the distance of an error from the cause of a failure', () => {
  const facts = { rank: 0, peer: 1, operation: 'barrier', group: 'world', reason: 'exit' }
  const lost = tsrError('ERR_TSR_PEER_LOST', facts)
  const waited = { rank: 0, operation: 'barrier', group: 'world', milliseconds: 5, peers: '1' }
  const circular = new Error('circular')
  circular.cause = circular

  it.each([
    ['0 for an error of the program', new Error('wrong'), 0],
    [
      '0 for a time-out that names no rank',
      tsrError('ERR_TSR_TIMEOUT', { what: 'it', milliseconds: 5 }),
      0,
    ],
    ['0 for a cycle of causes', circular, 0],
    ['0 for a value that is no error', undefined, 0],
    ['1 for a rank that left', tsrError('ERR_TSR_PEER_LEFT', facts), 1],
    ['2 for a wait for other ranks', tsrError('ERR_TSR_OPERATION_TIMEOUT', waited), 2],
    ['3 for a lost rank', lost, 3],
    ['3 for a copy from another thread', { ...lost.toJSON() }, 3],
    ['that of the first cause in the table', new Error('step', { cause: lost }), 3],
  ])('is %s', (_, thrown, distance) => {
    expect(distanceFromCause(thrown)).toBe(distance)
  })
})
