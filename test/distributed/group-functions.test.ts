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

  const isAsync = (name: string) =>
    ['newGroup', 'splitGroup', 'shrink', 'reconfigure'].includes(name)
  const calls = Object.entries(groupFunctions) as [string, () => unknown][]
  const refusalOf = (operation: string): unknown =>
    expect.objectContaining({ code: 'ERR_TSR_NOT_INITIALIZED', facts: { operation } })

  it.each(calls.filter(([name]) => !isAsync(name)))(
    'include %s, which calls the method of the same name',
    (name, call) => {
      expect(call).toThrow(refusalOf(name) as Error)
    },
  )

  it.each(calls.filter(([name]) => isAsync(name)))(
    'include %s, which rejects without a default group',
    async (name, call) => {
      await expect(call()).rejects.toEqual(refusalOf(name))
    },
  )
})
