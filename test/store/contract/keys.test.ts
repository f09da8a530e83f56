import type { Store } from '@tsrun/store'
import { describeEveryStore, text } from '../stores.ts'

describeEveryStore((stores) => {
  describe('a store of keys and values', () => {
    it('makes a value visible to every client once set has resolved', async () => {
      const { one, other } = stores()
      await one.set('k', 'first')
      expect(text(await other.get('k'))).toBe('first')
      await other.set('k', Uint8Array.of(0, 255))
      expect(await one.get('k')).toEqual(Uint8Array.of(0, 255))
    })

    it('accepts the empty key, the empty value and any text', async () => {
      const { one, other } = stores()
      await one.set('', '')
      await one.set('schlüssel/🗝', 'wörter ✓')
      expect(await other.get('')).toEqual(new Uint8Array(0))
      expect(text(await other.get('schlüssel/🗝'))).toBe('wörter ✓')
    })

    it('copies the values that it takes and returns', async () => {
      const { one } = stores()
      const mine = Uint8Array.of(1, 2, 3)
      await one.set('k', mine)
      mine.fill(9)
      const got = await one.get('k')
      expect(got).toEqual(Uint8Array.of(1, 2, 3))
      got.fill(9)
      expect(await one.get('k')).toEqual(Uint8Array.of(1, 2, 3))
      expect(Object.prototype.toString.call(got)).toBe('[object Uint8Array]')
      expect(Buffer.isBuffer(got)).toBe(false)
    })

    it('accepts values up to 8 MiB and keys up to 8 KiB, and refuses longer ones', async () => {
      const { one, other } = stores()
      const room = 8192 - (await longestPrefix(one))
      const value = new Uint8Array(8 * 1024 * 1024).fill(7)
      await one.set('x'.repeat(room), value)
      expect(Buffer.compare(await other.get('x'.repeat(room)), value)).toBe(0)
      await expect(one.set('x'.repeat(room + 1), '')).rejects.toMatchObject({
        code: 'ERR_TSR_STORE_LIMIT',
        facts: { bytes: 8193, limit: 8192 },
      })
      await expect(one.set('k', new Uint8Array(value.length + 1))).rejects.toMatchObject({
        code: 'ERR_TSR_STORE_LIMIT',
        facts: { bytes: value.length + 1, limit: value.length },
      })
      expect(await one.check(['k'])).toBe(false)
      const tooLong = one.check(['k', 'x'.repeat(8193)])
      await expect(tooLong).rejects.toMatchObject({ code: 'ERR_TSR_STORE_LIMIT' })
    })

    it('returns whether all keys exist', async () => {
      const { one, other } = stores()
      await one.set('a', '')
      expect(await other.check(['a'])).toBe(true)
      expect(await other.check(['a', 'b'])).toBe(false)
      expect(await other.check([])).toBe(true)
    })

    it('returns whether a deleted key existed', async () => {
      const { one, other } = stores()
      await one.set('a', '')
      expect(await other.delete('a')).toBe(true)
      expect(await one.delete('a')).toBe(false)
      expect(await one.check(['a'])).toBe(false)
    })

    it('lists the keys with a prefix, sorted', async () => {
      const { one, other } = stores()
      for (const key of ['b/2', 'a', 'b/10', 'b', 'c']) await one.set(key, '')
      expect(await other.list('b')).toEqual(['b', 'b/10', 'b/2'])
      expect((await other.list()).filter((key) => key !== 'outside')).toEqual([
        'a',
        'b',
        'b/10',
        'b/2',
        'c',
      ])
      expect(await other.list('d')).toEqual([])
    })
  })
})

/** How much of a key the store itself takes. */
async function longestPrefix(store: Store): Promise<number> {
  const error: unknown = await store.get('', { timeout: 0 }).catch((reason: unknown) => reason)
  return (error as { facts: { keys: string } }).facts.keys.length
}
