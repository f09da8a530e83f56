import type { PersistentCalls, BlockingCalls } from '@tsrun/distributed'
import { groupFunctions, type GroupCalls } from '../internals/distributed/groups.ts'

type Calls = GroupCalls<'async'> & BlockingCalls & PersistentCalls
/** Does not compile while a call has no function. */
const areComplete: [Exclude<keyof Calls, keyof typeof groupFunctions>] extends [never]
  ? true
  : false = true

describe('the functions on the default group', () => {
  it('exist for every method of a group', () => {
    expect(areComplete).toBe(true)
  })

  it.each(Object.entries(groupFunctions))(
    'include %s, which calls a method of the group',
    (name, call) => {
      const operation = name === 'splitGroup' ? 'split' : name
      const facts = { code: 'ERR_TSR_NOT_INITIALIZED', facts: { operation } }
      expect(call as () => unknown).toThrow(expect.objectContaining(facts))
    },
  )
})
