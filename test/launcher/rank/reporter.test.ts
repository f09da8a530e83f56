import { tsrError } from '@tsrun/core'
import { describeError } from '../../../packages/launcher/src/rank/reporter.ts'

const lost = tsrError('ERR_TSR_PEER_LOST', {
  ...{ peer: 3, rank: 1, reason: 'reset', operation: 'allReduce #4', group: 'world' },
})

it('has the error as Node prints it', () => {
  const { text, ...facts } = describeError(new TypeError('boom', { cause: new Error('root') }))
  expect(facts).toEqual({ name: 'TypeError', message: 'boom', peers: [], consequence: false })
  expect(text).toMatch(/^TypeError: boom\n +at /)
  expect(text).toContain('[cause]: Error: root')
})

it('has an error of ours without its facts, which the message holds already', () => {
  expect(describeError(lost).text).toBe(lost.stack)
  const { text } = describeError(
    tsrError('ERR_TSR_TIMEOUT', { what: 'it', milliseconds: 1 }, { cause: new Error('root') }),
  )
  expect(text).toMatch(/^TsrError: it did not finish [^]*\n\[cause\]: Error: root\n/)
})

it('sees a consequence, also behind other errors, and whom it is about', () => {
  expect(describeError(lost)).toMatchObject({
    code: 'ERR_TSR_PEER_LOST',
    peers: [3],
    consequence: true,
  })
  const wrapped = new Error('the step failed', { cause: new Error('inner', { cause: lost }) })
  expect(describeError(wrapped)).toMatchObject({
    message: 'the step failed',
    code: 'ERR_TSR_PEER_LOST',
    consequence: true,
  })
})

it('sees it in a copy that crossed a thread', () => {
  expect(describeError({ ...lost.toJSON() })).toMatchObject({ peers: [3], consequence: true })
})

it.each([
  ['text', 'string', 'text'],
  [undefined, 'undefined', 'undefined'],
  [null, 'object', 'null'],
  [42, 'number', '42'],
])('takes %j, which is no error', (thrown, name, message) => {
  expect(describeError(thrown)).toMatchObject({ name, message, consequence: false })
})

it('survives an error that throws when it is looked at', () => {
  const trap = new Proxy(
    {},
    {
      get: () => {
        throw new Error('no')
      },
    },
  )
  expect(describeError(trap)).toMatchObject({ name: 'unknown' })
  const circle = new Error('circle')
  circle.cause = circle
  expect(describeError(circle)).toMatchObject({ message: 'circle' })
})
