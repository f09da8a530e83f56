import { describeEveryStore, text } from '../stores.ts'

describeEveryStore((stores) => {
  describe('a queue of the store', () => {
    it('delivers values in order, each to exactly one caller', async () => {
      const { one, other } = stores()
      expect(await one.queuePush('q', 'a')).toBe(1)
      expect(await other.queuePush('q', 'b')).toBe(2)
      expect(await one.queueLength('q')).toBe(2)
      expect(text(await other.queuePop('q'))).toBe('a')
      expect(text(await one.queuePop('q'))).toBe('b')
      expect(await other.queueLength('q')).toBe(0)
    })

    it('serves waiting callers in the order of their calls', async () => {
      const { one, other } = stores()
      const first = one.queuePop('q')
      await one.check([])
      const second = other.queuePop('q')
      await other.check([])
      await one.queuePush('q', 'a')
      await one.queuePush('q', 'b')
      expect([text(await first), text(await second)]).toEqual(['a', 'b'])
      expect(await one.queueLength('q')).toBe(0)
    })

    it('delivers every value exactly once when many callers push and pop', async () => {
      const { one, other } = stores()
      const popped = Promise.all(
        Array.from({ length: 60 }, (_, i) => (i % 2 === 0 ? one : other).queuePop('q')),
      )
      await Promise.all(
        Array.from({ length: 60 }, (_, i) => (i % 3 === 0 ? one : other).queuePush('q', String(i))),
      )
      const values = (await popped).map((value) => Number(text(value)))
      expect(values.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 60 }, (_, i) => i))
    })

    it('is separate from a key of the same name', async () => {
      const { one } = stores()
      await one.queuePush('name', 'a')
      expect(await one.check(['name'])).toBe(false)
      await one.set('name', 'b')
      expect(text(await one.queuePop('name'))).toBe('a')
      expect(text(await one.get('name'))).toBe('b')
    })
  })
})
