import type { Store, StoreEvent } from '@tsrun/store'
import { kinds, promiseOf, text, type Pair } from './stores.ts'

describe.each(kinds)('%s', (_, open) => {
  let pair: Pair
  let one: Store
  let other: Store

  beforeEach(async () => {
    pair = await open()
    one = pair.one
    other = pair.other
  })
  afterEach(async () => {
    await pair.close()
  })

  describe('keys', () => {
    it('shows a value to everybody once set has resolved', async () => {
      await one.set('k', 'first')
      expect(text(await other.get('k'))).toBe('first')
      await other.set('k', Uint8Array.of(0, 255))
      expect(await one.get('k')).toEqual(Uint8Array.of(0, 255))
    })

    it('keeps the empty key, the empty value and any text', async () => {
      await one.set('', '')
      await one.set('schlüssel/🗝', 'wörter ✓')
      expect(await other.get('')).toEqual(new Uint8Array(0))
      expect(text(await other.get('schlüssel/🗝'))).toBe('wörter ✓')
    })

    it('shares no memory with its callers', async () => {
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

    it('takes values of 8 MiB and keys of 8 KiB, and no byte more', async () => {
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
    })

    it('says whether all keys exist', async () => {
      await one.set('a', '')
      expect(await other.check(['a'])).toBe(true)
      expect(await other.check(['a', 'b'])).toBe(false)
      expect(await other.check([])).toBe(true)
    })

    it('says whether a deleted key existed', async () => {
      await one.set('a', '')
      expect(await other.delete('a')).toBe(true)
      expect(await one.delete('a')).toBe(false)
      expect(await one.check(['a'])).toBe(false)
    })

    it('lists the keys of a prefix, sorted', async () => {
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

  describe('counters and comparisons', () => {
    it('counts from 0, as decimal text', async () => {
      expect(await one.add('n', 5)).toBe(5)
      expect(await other.add('n', -7)).toBe(-2)
      expect(text(await one.get('n'))).toBe('-2')
      await one.set('n', '40')
      expect(await other.add('n', 2)).toBe(42)
    })

    it('loses no addition of many at once', async () => {
      const sums = await Promise.all(
        Array.from({ length: 100 }, (_, i) => (i % 2 === 0 ? one : other).add('n', 1)),
      )
      expect(new Set(sums).size).toBe(100)
      expect(await one.add('n', 0)).toBe(100)
    })

    it.each(['', 'text', '1.5', '99999999999999999999'])(
      'refuses to count on %j',
      async (value) => {
        await one.set('n', value)
        await expect(one.add('n', 1)).rejects.toMatchObject({ code: 'ERR_TSR_STORE_TYPE' })
        expect(text(await one.get('n'))).toBe(value)
      },
    )

    it('refuses a sum that it could not hold exactly', async () => {
      await one.add('n', Number.MAX_SAFE_INTEGER)
      await expect(other.add('n', 1)).rejects.toMatchObject({ code: 'ERR_TSR_STORE_TYPE' })
      expect(await other.add('n', -1)).toBe(Number.MAX_SAFE_INTEGER - 1)
    })

    it('sets only if the value is the expected one, and says so', async () => {
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

    it('lets exactly one of many win', async () => {
      const outcomes = await Promise.all(
        Array.from({ length: 20 }, (_, i) =>
          (i % 2 === 0 ? one : other).compareSet('leader', undefined, String(i)),
        ),
      )
      const winners = outcomes.filter(({ success }) => success)
      expect(winners).toHaveLength(1)
      for (const { value } of outcomes) expect(value).toEqual(winners[0]!.value)
    })

    it('appends, up to the limit of a value', async () => {
      expect(await one.append('log', 'ab')).toBe(2)
      expect(await other.append('log', 'c')).toBe(3)
      expect(text(await one.get('log'))).toBe('abc')
      await one.set('log', new Uint8Array(8 * 1024 * 1024))
      await expect(one.append('log', 'x')).rejects.toMatchObject({ code: 'ERR_TSR_STORE_LIMIT' })
    })
  })

  describe('waiting', () => {
    it('hands a value to those who came before it', async () => {
      const waiting = [one.get('k'), other.get('k'), one.wait(['k', 'l'])] as const
      await other.set('l', '')
      await other.set('k', 'here')
      const [first, second] = await Promise.all(waiting)
      expect([text(first), text(second)]).toEqual(['here', 'here'])
    })

    it.each(['set', 'add', 'append', 'compareSet'] as const)(
      'is woken by %s',
      async (operation) => {
        const waiting = one.get('k')
        if (operation === 'add') await other.add('k', 1)
        else if (operation === 'compareSet') await other.compareSet('k', undefined, '1')
        else await other[operation]('k', '1')
        expect(text(await waiting)).toBe('1')
      },
    )

    it('waits until all keys exist at the same time', async () => {
      const waiting = one.wait(['a', 'b', 'a'], { timeout: 0 })
      await expect(waiting).rejects.toMatchObject({ code: 'ERR_TSR_STORE_TIMEOUT' })
      const both = one.wait(['a', 'b'])
      let done = false
      void both.then(() => (done = true))
      await other.set('a', '')
      await other.delete('a')
      await other.set('b', '')
      await one.check([])
      expect(done).toBe(false)
      await other.set('a', '')
      await both
      await one.wait([])
    })

    it('names the missing keys at the time-out', async () => {
      await one.set('here', '')
      await expect(one.wait(['gone', 'here', 'away'], { timeout: 20 })).rejects.toMatchObject({
        code: 'ERR_TSR_STORE_TIMEOUT',
        message: expect.stringMatching(/wait timed out after 20 ms; missing: \S*gone, \S*away\./),
      })
      await expect(one.get('gone', { timeout: 1 })).rejects.toThrow(/missing: \S*gone\./)
      await expect(one.queuePop('tasks', { timeout: 0 })).rejects.toThrow(/missing: \S*tasks\./)
    })

    it('finds what exists even without time to wait', async () => {
      await one.set('k', 'v')
      await one.queuePush('q', 'w')
      expect(text(await other.get('k', { timeout: 0 }))).toBe('v')
      expect(text(await other.queuePop('q', { timeout: 0 }))).toBe('w')
    })

    it('names the first of very many missing keys and counts the rest', async () => {
      const keys = Array.from({ length: 100 }, (_, i) => `key-${String(i)}`)
      await expect(one.wait(keys, { timeout: 0 })).rejects.toThrow(/key-15 and 84 more/)
    })

    it('ends at an abort', async () => {
      const abort = new AbortController()
      const reason = new Error('no longer needed')
      const aborted = { code: 'ERR_TSR_ABORTED', cause: reason }
      const { signal } = abort
      const ends = [
        one.get('k', { signal }),
        one.wait(['k'], { signal }),
        other.queuePop('q', { signal }),
      ].map((call) => expect(call).rejects.toMatchObject(aborted))
      abort.abort(reason)
      await Promise.all(ends)
      await expect(one.get('k', { signal })).rejects.toMatchObject(aborted)
    })

    it('gives what an aborted caller waited for to the next one', async () => {
      const abort = new AbortController()
      const given = one.queuePop('q', { signal: abort.signal })
      const next = other.queuePop('q')
      abort.abort()
      await expect(given).rejects.toMatchObject({ code: 'ERR_TSR_ABORTED' })
      await one.queuePush('q', 'v')
      expect(text(await next)).toBe('v')
    })
  })

  describe('time to live', () => {
    it('forgets a key and tells those who watch it', async () => {
      const events: StoreEvent[] = []
      await one.watch('k', (event) => events.push(event))
      const { gone } = await watchDeletion(one, 'k')
      await one.set('k', 'v', { timeToLive: 20 })
      await gone
      expect(await other.check(['k'])).toBe(false)
      expect(events.map(({ value }) => text(value))).toEqual(['v', undefined])
    })

    it('starts again with every set, and ends with one that has none', async () => {
      await one.set('k', '1', { timeToLive: 1 })
      await one.set('k', '2', { timeToLive: 2 ** 40 })
      await one.set('l', '1', { timeToLive: 1 })
      await one.set('l', '2')
      const { gone } = await watchDeletion(one, 'm')
      await one.set('m', '', { timeToLive: 20 })
      await gone
      expect(await other.check(['k', 'l'])).toBe(true)
    })

    it('goes on when a value is changed by add and append', async () => {
      const deletions = [await watchDeletion(one, 'k'), await watchDeletion(other, 'l')]
      await one.set('k', '1', { timeToLive: 20 })
      await one.set('l', '1', { timeToLive: 20 })
      await other.add('k', 1)
      await other.append('l', 'x')
      for (const { gone } of deletions) await gone
    })
  })

  describe('queues', () => {
    it('hands values out in their order, each to one caller', async () => {
      expect(await one.queuePush('q', 'a')).toBe(1)
      expect(await other.queuePush('q', 'b')).toBe(2)
      expect(await one.queueLength('q')).toBe(2)
      expect(text(await other.queuePop('q'))).toBe('a')
      expect(text(await one.queuePop('q'))).toBe('b')
      expect(await other.queueLength('q')).toBe(0)
    })

    it('serves those who wait in the order they came', async () => {
      const first = one.queuePop('q')
      await one.check([])
      const second = other.queuePop('q')
      await other.check([])
      await one.queuePush('q', 'a')
      await one.queuePush('q', 'b')
      expect([text(await first), text(await second)]).toEqual(['a', 'b'])
      expect(await one.queueLength('q')).toBe(0)
    })

    it('loses and doubles nothing when many push and pop', async () => {
      const popped = Promise.all(
        Array.from({ length: 60 }, (_, i) => (i % 2 === 0 ? one : other).queuePop('q')),
      )
      await Promise.all(
        Array.from({ length: 60 }, (_, i) => (i % 3 === 0 ? one : other).queuePush('q', String(i))),
      )
      const values = (await popped).map((value) => Number(text(value)))
      expect(values.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 60 }, (_, i) => i))
    })

    it('keeps queues and keys apart', async () => {
      await one.queuePush('name', 'a')
      expect(await one.check(['name'])).toBe(false)
      await one.set('name', 'b')
      expect(text(await one.queuePop('name'))).toBe('a')
      expect(text(await one.get('name'))).toBe('b')
    })
  })

  describe('watching', () => {
    it('tells every change of a key in order, until it is ended', async () => {
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

    it('tells everybody who watches', async () => {
      const deletions = [await watchDeletion(one, 'k'), await watchDeletion(other, 'k')]
      await one.set('k', '')
      await one.delete('k')
      for (const { gone } of deletions) await gone
    })
  })

  describe('arguments', () => {
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
      await expect(call(one)).rejects.toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      expect(await one.check(['k'])).toBe(false)
    })
  })

  describe('closing', () => {
    it('ends pending and later calls', async () => {
      const closed = { code: 'ERR_TSR_STORE_CLOSED', isConsequence: true }
      const pending = [one.get('k'), one.queuePop('q')].map((call) =>
        expect(call).rejects.toMatchObject(closed),
      )
      const stop = await one.watch('k', () => undefined)
      await one.close()
      await Promise.all(pending)
      await expect(one.set('k', '')).rejects.toMatchObject(closed)
      await expect(one.list()).rejects.toMatchObject(closed)
      await stop()
      await one.close()
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

/** How much of a key the store itself takes. */
async function longestPrefix(store: Store): Promise<number> {
  const error: unknown = await store.get('', { timeout: 0 }).catch((reason: unknown) => reason)
  return (error as { facts: { keys: string } }).facts.keys.length
}
