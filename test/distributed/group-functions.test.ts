import * as functions from '../../packages/distributed/src/group-functions.ts'
import type {
  PersistentCalls,
  BlockingCalls,
  GroupCalls,
} from '../../packages/distributed/src/process-group.ts'

type Calls = GroupCalls<'async'> & BlockingCalls & PersistentCalls
/** Does not compile while a call has no function. */
const areComplete: [Exclude<keyof Calls, keyof typeof functions>] extends [never] ? true : false =
  true

describe('the functions on the default group', () => {
  it('are those of all calls of a group', () => {
    expect(areComplete).toBe(true)
  })

  it.each(Object.entries(functions))('%s calls the method of its own name', (name, call) => {
    const facts = { code: 'ERR_TSR_NOT_INITIALIZED', facts: { operation: name } }
    expect(call as () => unknown).toThrow(expect.objectContaining(facts))
  })
})
