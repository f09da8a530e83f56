import type { StoreEvent, Store } from '@tsrun/store'
import { describeEveryStore, promiseOf, text } from '../stores.ts'

describeEveryStore((stores) => {
  describe('the time to live of a key', () => {
    it('deletes the key when it expires, and notifies watchers', async () => {
      const { one, other } = stores()
      const events: StoreEvent[] = []
      await one.watch('k', (event) => events.push(event))
      const { gone } = await watchDeletion(one, 'k')
      await one.set('k', 'v', { timeToLive: 20 })
      await gone
      expect(await other.check(['k'])).toBe(false)
      expect(events.map(({ value }) => text(value))).toEqual(['v', undefined])
    })

    it('restarts with every set, and is removed by a set without a time to live', async () => {
      const { one, other } = stores()
      await one.set('k', '1', { timeToLive: 1 })
      await one.set('k', '2', { timeToLive: 2 ** 40 })
      await one.set('l', '1', { timeToLive: 1 })
      await one.set('l', '2')
      const { gone } = await watchDeletion(one, 'm')
      await one.set('m', '', { timeToLive: 20 })
      await gone
      expect(await other.check(['k', 'l'])).toBe(true)
    })

    it('is kept by add and append', async () => {
      const { one, other } = stores()
      const deletions = [await watchDeletion(one, 'k'), await watchDeletion(other, 'l')]
      await one.set('k', '1', { timeToLive: 20 })
      await one.set('l', '1', { timeToLive: 20 })
      await other.add('k', 1)
      await other.append('l', 'x')
      for (const { gone } of deletions) await gone
    })
  })

  describe('a key that is set while connected', () => {
    it('can be read and deleted by others as long as its owner is connected', async () => {
      const { one, other } = stores()
      await one.set('k', 'v', { whileConnected: true })
      expect(text(await other.get('k'))).toBe('v')
      expect(await other.delete('k')).toBe(true)
    })
  })

  describe('a watch', () => {
    it('reports every change of a key in order until it is stopped', async () => {
      const { one, other } = stores()
      const seen: (string | undefined)[] = []
      const stop = await one.watch('k', ({ key, value }) =>
        seen.push(`${key}=${text(value) ?? '-'}`),
      )
      await other.set('k', 'a')
      await other.set('other', 'x')
      await other.append('k', 'b')
      await other.delete('k')
      await other.compareSet('k', undefined, '1')
      await other.add('k', 1)
      await one.check([])
      await stop()
      await other.set('k', 'unseen')
      await one.check([])
      expect(seen).toEqual(['k=a', 'k=ab', 'k=-', 'k=1', 'k=2'])
      await stop()
    })

    it('reports changes to every client that watches the key', async () => {
      const { one, other } = stores()
      const deletions = [await watchDeletion(one, 'k'), await watchDeletion(other, 'k')]
      await one.set('k', '')
      await one.delete('k')
      for (const { gone } of deletions) await gone
    })
  })
})

/** Watches a key; `gone` resolves when it is deleted or expires. */
async function watchDeletion(store: Store, key: string): Promise<{ gone: Promise<void> }> {
  const { promise: gone, resolve } = promiseOf<undefined>()
  await store.watch(key, ({ value }) => {
    if (value === undefined) resolve(undefined)
  })
  return { gone }
}
