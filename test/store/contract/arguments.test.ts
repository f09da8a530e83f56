import type { Store } from '@tsrun/store'
import { describeEveryStore } from '../stores.ts'

describeEveryStore((stores) => {
  describe('the check of arguments', () => {
    it.each<[string, (store: Store) => Promise<unknown>]>([
      ['a key that is no text', (store) => store.get(5 as never)],
      ['a key that UTF-8 cannot carry', (store) => store.set('\ud800', '')],
      ['keys that are no array', (store) => store.wait('k' as never)],
      ['a value that is no bytes', (store) => store.set('k', {} as never)],
      ['a negative time-out', (store) => store.get('k', { timeout: -1 })],
      ['a time-out that is not a number', (store) => store.get('k', { timeout: NaN })],
      ['a negative time to live', (store) => store.set('k', '', { timeToLive: -1 })],
      ['half an amount', (store) => store.add('k', 0.5)],
    ])('refuses %s', async (_, call) => {
      const { one } = stores()
      await expect(call(one)).rejects.toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      expect(await one.check(['k'])).toBe(false)
    })
  })
})
