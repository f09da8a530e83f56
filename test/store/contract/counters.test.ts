import { describeEveryStore, text } from '../stores.ts'

describeEveryStore((stores) => {
  describe('add, append and compareSet', () => {
    it('add counts from 0, and stores the count as decimal text', async () => {
      const { one, other } = stores()
      expect(await one.add('n', 5)).toBe(5)
      expect(await other.add('n', -7)).toBe(-2)
      expect(text(await one.get('n'))).toBe('-2')
      await one.set('n', '40')
      expect(await other.add('n', 2)).toBe(42)
    })

    it('add counts every one of 100 concurrent additions', async () => {
      const { one, other } = stores()
      const sums = await Promise.all(
        Array.from({ length: 100 }, (_, i) => (i % 2 === 0 ? one : other).add('n', 1)),
      )
      expect(new Set(sums).size).toBe(100)
      expect(await one.add('n', 0)).toBe(100)
    })

    it.each(['', 'text', '1.5', '99999999999999999999'])(
      'add refuses a key whose value is %j',
      async (value) => {
        const { one } = stores()
        await one.set('n', value)
        await expect(one.add('n', 1)).rejects.toMatchObject({ code: 'ERR_TSR_STORE_TYPE' })
        expect(text(await one.get('n'))).toBe(value)
      },
    )

    it('add refuses a sum beyond the safe integers', async () => {
      const { one, other } = stores()
      await one.add('n', Number.MAX_SAFE_INTEGER)
      await expect(other.add('n', 1)).rejects.toMatchObject({ code: 'ERR_TSR_STORE_TYPE' })
      expect(await other.add('n', -1)).toBe(Number.MAX_SAFE_INTEGER - 1)
    })

    it('compareSet changes a key only if its value is the expected one, and returns its value', async () => {
      const { one, other } = stores()
      const missing = await one.compareSet('k', 'a', 'b')
      expect(missing).toEqual({ success: false, value: undefined })
      const created = await one.compareSet('k', undefined, 'a')
      expect([created.success, text(created.value)]).toEqual([true, 'a'])
      const exists = await other.compareSet('k', undefined, 'b')
      expect([exists.success, text(exists.value)]).toEqual([false, 'a'])
      const differs = await other.compareSet('k', 'b', 'c')
      expect([differs.success, text(differs.value)]).toEqual([false, 'a'])
      const same = await other.compareSet('k', 'a', 'a')
      expect([same.success, text(same.value)]).toEqual([true, 'a'])
      const changed = await other.compareSet('k', 'a', 'd')
      expect([changed.success, text(changed.value)]).toEqual([true, 'd'])
      expect(text(await one.get('k'))).toBe('d')
    })

    it('compareSet succeeds for exactly one of many concurrent callers', async () => {
      const { one, other } = stores()
      const outcomes = await Promise.all(
        Array.from({ length: 20 }, (_, i) =>
          (i % 2 === 0 ? one : other).compareSet('leader', undefined, String(i)),
        ),
      )
      const winners = outcomes.filter(({ success }) => success)
      expect(winners).toHaveLength(1)
      for (const { value } of outcomes) expect(value).toEqual(winners[0]!.value)
    })

    it('append extends a value up to the size limit', async () => {
      const { one, other } = stores()
      expect(await one.append('log', 'ab')).toBe(2)
      expect(await other.append('log', 'c')).toBe(3)
      expect(text(await one.get('log'))).toBe('abc')
      await one.set('log', new Uint8Array(8 * 1024 * 1024))
      await expect(one.append('log', 'x')).rejects.toMatchObject({ code: 'ERR_TSR_STORE_LIMIT' })
    })
  })
})
