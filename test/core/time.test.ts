import { Deadline, retry, waitOrAbort } from '@tsrun/core'

const pending = new Promise<never>(() => undefined)
const ABORTED = { code: 'ERR_TSR_ABORTED' }

describe('a deadline', () => {
  it('expires', async () => {
    const far = Deadline.after(600_000)
    expect(far.milliseconds).toBe(600_000)
    expect(far.remaining()).toBeGreaterThan(0)
    expect(far.remaining()).toBeLessThanOrEqual(600_000)
    const deadline = Deadline.after(10)
    await expect(waitOrAbort(pending, 'nothing', Deadline.after(20))).rejects.toThrow('nothing')
    expect(deadline.expired).toBe(true)
    expect(deadline.remaining()).toBe(0)
  })

  it('may be infinite', () => {
    expect(Deadline.never.remaining()).toBe(Infinity)
    expect(Deadline.never.expired).toBe(false)
    expect(Deadline.after(Infinity).remaining()).toBe(Infinity)
  })
})

describe('waitOrAbort', () => {
  it('settles as the promise does', async () => {
    const { signal } = new AbortController()
    const error = new Error('its own')
    expect(await waitOrAbort(Promise.resolve(5), 'x', Deadline.after(1000), signal)).toBe(5)
    const failure = waitOrAbort(Promise.reject(error), 'x', Deadline.never, signal)
    await expect(failure).rejects.toBe(error)
  })

  it('names the work that timed out', async () => {
    await expect(waitOrAbort(pending, 'the barrier', Deadline.after(5))).rejects.toMatchObject({
      code: 'ERR_TSR_TIMEOUT',
      message: expect.stringContaining('the barrier did not finish within 5 ms') as unknown,
    })
  })

  it('rejects when the signal aborts, with the reason as the cause', async () => {
    const abort = new AbortController()
    const reason = new Error('enough')
    const waiting = waitOrAbort(pending, 'the barrier', Deadline.never, abort.signal)
    abort.abort(reason)
    await expect(waiting).rejects.toMatchObject({ ...ABORTED, cause: reason })
  })

  it('rejects at once when the signal is already aborted', async () => {
    const waiting = waitOrAbort(pending, 'x', Deadline.never, AbortSignal.abort())
    await expect(waiting).rejects.toMatchObject(ABORTED)
  })

  it('causes no unhandled rejection if the promise fails after the abort', async () => {
    const unhandled: unknown[] = []
    const listener = (reason: unknown): void => void unhandled.push(reason)
    process.on('unhandledRejection', listener)
    let fail!: (error: Error) => void
    const failing = new Promise<never>((_, reject) => (fail = reject))
    const waiting = waitOrAbort(failing, 'x', Deadline.never, AbortSignal.abort())
    await expect(waiting).rejects.toMatchObject(ABORTED)
    fail(new Error('late'))
    await new Promise((resolve) => setImmediate(resolve))
    process.off('unhandledRejection', listener)
    expect(unhandled).toEqual([])
  })

  it('removes its listener from the signal', async () => {
    const { signal } = new AbortController()
    const listeners = new Set<unknown>()
    const add = signal.addEventListener.bind(signal)
    signal.addEventListener = (type: string, listener: never) => {
      listeners.add(listener)
      add(type, listener)
    }
    signal.removeEventListener = (_: string, listener: unknown) => void listeners.delete(listener)
    await waitOrAbort(Promise.resolve(), 'x', Deadline.never, signal)
    expect(listeners.size).toBe(0)
  })
})

describe('retry', () => {
  it('repeats the call until it succeeds, and reports each failed try', async () => {
    let tries = 0
    const told: [string, number][] = []
    const result = await retry(
      async () => {
        await Promise.resolve()
        if (++tries < 4) throw new Error(`no ${String(tries)}`)
        return tries
      },
      {
        deadline: Deadline.after(10_000),
        onFailure: (error, attempt) => told.push([(error as Error).message, attempt]),
      },
    )
    expect(result).toBe(4)
    expect(told).toEqual([
      ['no 1', 1],
      ['no 2', 2],
      ['no 3', 3],
    ])
  })

  it('rethrows the last error at the deadline', async () => {
    let tries = 0
    const attempts = retry(() => Promise.reject(new Error(`no ${String(++tries)}`)), {
      deadline: Deadline.after(300),
    })
    await expect(attempts).rejects.toThrow(/^no \d+$/)
    expect(tries).toBeGreaterThan(1)
  })

  it('does not retry after an error that is not transient', async () => {
    let tries = 0
    const attempts = retry(() => Promise.reject(new Error(`no ${String(++tries)}`)), {
      deadline: Deadline.never,
      isTransient: () => false,
    })
    await expect(attempts).rejects.toThrow('no 1')
    expect(tries).toBe(1)
  })

  it('stops pausing when the signal aborts', async () => {
    const abort = new AbortController()
    const attempts = retry(() => Promise.reject(new Error('no')), {
      deadline: Deadline.never,
      signal: abort.signal,
      onFailure: () => {
        abort.abort()
      },
    })
    await expect(attempts).rejects.toThrow(/abort/)
  })
})
