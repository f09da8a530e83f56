import { createContext, runInContext } from 'node:vm'
import { isTsrError, reviveTsrError, tsrError, type SerializedTsrError } from '@tsrun/core'

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
      isConsequence: false,
      message: 'rank is -1; expected at least 0. Correct the argument. (ERR_TSR_ARGUMENT)',
      advice: 'Correct the argument.',
      facts: { name: 'rank', value: -1, expected: 'at least 0' },
      cause: { message: 'why' },
    })
  })

  it('has a stack that begins with its caller', () => {
    const [, first] = make().stack!.split('\n')
    expect(first).toContain('errors.test.ts')
  })

  it('knows when it only follows from the failure of another rank', () => {
    const facts = { endpoint: 'a:1', reason: 'gone' }
    expect(tsrError('ERR_TSR_STORE_CLOSED', facts).isConsequence).toBe(true)
  })

  it('is the same on the other side of a thread, a process or a file', () => {
    const error = make()
    for (const copy of [structuredClone(error.toJSON()), JSON.parse(JSON.stringify(error))]) {
      const revived = reviveTsrError(copy as SerializedTsrError)
      expect({ ...revived.toJSON() }).toEqual(error.toJSON())
      expect(revived.stack).toBe(error.stack)
      expect(revived.category).toBe('user')
    }
  })

  it('survives JSON with facts that JSON does not know', () => {
    const what = (2n ** 60n) as never
    const text = JSON.stringify(tsrError('ERR_TSR_INTERNAL', { what }))
    expect(reviveTsrError(JSON.parse(text) as SerializedTsrError).message).toContain(
      String(2n ** 60n),
    )
  })

  it('is revived although its code is of another version', () => {
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
  ])('rejects %p', (value) => {
    expect(isTsrError(value)).toBe(false)
  })
})
