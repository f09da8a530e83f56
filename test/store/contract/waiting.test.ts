import { describeEveryStore, text } from '../stores.ts'

describeEveryStore((stores) => {
  describe('a call that waits for keys', () => {
    it('returns the value once another client sets it', async () => {
      const { one, other } = stores()
      const waiting = [one.get('k'), other.get('k'), one.wait(['k', 'l'])] as const
      await other.set('l', '')
      await other.set('k', 'here')
      const [first, second] = await Promise.all(waiting)
      expect([text(first), text(second)]).toEqual(['here', 'here'])
    })

    it.each(['set', 'add', 'append', 'compareSet'] as const)(
      'resolves when the key is created by %s',
      async (operation) => {
        const { one, other } = stores()
        const waiting = one.get('k')
        if (operation === 'add') await other.add('k', 1)
        else if (operation === 'compareSet') await other.compareSet('k', undefined, '1')
        else await other[operation]('k', '1')
        expect(text(await waiting)).toBe('1')
      },
    )

    it('waits until all keys exist at the same time', async () => {
      const { one, other } = stores()
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

    it('returns the values of several keys in the order of the keys', async () => {
      const { one, other } = stores()
      await one.set('b', 'second')
      const waiting = one.multiGet(['b', 'a', 'b'])
      await other.set('a', 'first')
      expect((await waiting).map(text)).toEqual(['second', 'first', 'second'])
      expect(await one.multiGet([])).toEqual([])
      await expect(one.multiGet(['a', 'gone'], { timeout: 10 })).rejects.toThrow(
        /multiGet timed out after 10 ms; missing: \S*gone\./,
      )
    })

    it('returns the values of a thousand keys', async () => {
      const { one, other } = stores()
      const keys = Array.from({ length: 1000 }, (_, i) => `key ${i}`)
      await Promise.all(keys.map((key) => other.set(key, `value of ${key}`)))
      const values = await one.multiGet(keys)
      expect(values.map(text)).toEqual(keys.map((key) => `value of ${key}`))
    })

    it('fails if the total size of its values exceeds the limit, while the set succeeds', async () => {
      const { one, other } = stores()
      const half = new Uint8Array(5 * 1024 * 1024)
      await one.set('a', half)
      const waiting = one.multiGet(['a', 'b'])
      const [setting, refused] = await Promise.allSettled([other.set('b', half), waiting])
      expect(setting.status).toBe('fulfilled')
      expect(refused).toMatchObject({ reason: { code: 'ERR_TSR_STORE_LIMIT' } })
    })

    it('names the missing keys at the time-out', async () => {
      const { one } = stores()
      await one.set('here', '')
      await expect(one.wait(['gone', 'here', 'away'], { timeout: 20 })).rejects.toMatchObject({
        code: 'ERR_TSR_STORE_TIMEOUT',
        message: expect.stringMatching(/wait timed out after 20 ms; missing: \S*gone, \S*away\./),
      })
      await expect(one.get('gone', { timeout: 1 })).rejects.toThrow(/missing: \S*gone\./)
      await expect(one.queuePop('tasks', { timeout: 0 })).rejects.toThrow(/missing: \S*tasks\./)
    })

    it('returns existing keys even with a time-out of 0', async () => {
      const { one, other } = stores()
      await one.set('k', 'v')
      await one.queuePush('q', 'w')
      expect(text(await other.get('k', { timeout: 0 }))).toBe('v')
      expect(text(await other.queuePop('q', { timeout: 0 }))).toBe('w')
    })

    it('names the first of 100 missing keys, and counts the rest', async () => {
      const { one } = stores()
      const keys = Array.from({ length: 100 }, (_, i) => `key-${String(i)}`)
      await expect(one.wait(keys, { timeout: 0 })).rejects.toThrow(/key-15 and 84 more/)
    })

    it('fails when its signal is aborted', async () => {
      const { one, other } = stores()
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

    it('leaves the value of a queue to the next call if it is aborted', async () => {
      const { one, other } = stores()
      const abort = new AbortController()
      const given = one.queuePop('q', { signal: abort.signal })
      const next = other.queuePop('q')
      abort.abort()
      await expect(given).rejects.toMatchObject({ code: 'ERR_TSR_ABORTED' })
      await one.queuePush('q', 'v')
      expect(text(await next)).toBe('v')
    })
  })

  describe('closing a store', () => {
    it('fails pending and later calls', async () => {
      const { one } = stores()
      const closed = { code: 'ERR_TSR_STORE_CLOSED' }
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
