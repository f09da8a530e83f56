import { Deadline, waitOrAbort } from '@tsrun/core'

const pending = new Promise<never>(() => undefined)
const ABORTED = { code: 'ERR_TSR_ABORTED' }

describe('a deadline', () => {
  it('runs out', async () => {
    const deadline = Deadline.after(10)
    expect(deadline.milliseconds).toBe(10)
    expect(deadline.remaining()).toBeGreaterThan(0)
    expect(deadline.remaining()).toBeLessThanOrEqual(10)
    await expect(waitOrAbort(pending, 'nothing', Deadline.after(20))).rejects.toThrow('nothing')
    expect(deadline.expired).toBe(true)
    expect(deadline.remaining()).toBe(0)
  })

  it('may never come', () => {
    expect(Deadline.never.remaining()).toBe(Infinity)
    expect(Deadline.never.expired).toBe(false)
    expect(Deadline.after(Infinity).remaining()).toBe(Infinity)
  })
})

describe('waitOrAbort', () => {
  it('settles like the promise', async () => {
    const { signal } = new AbortController()
    const error = new Error('its own')
    expect(await waitOrAbort(Promise.resolve(5), 'x', Deadline.after(1000), signal)).toBe(5)
    const failure = waitOrAbort(Promise.reject(error), 'x', Deadline.never, signal)
    await expect(failure).rejects.toBe(error)
  })

  it('names what did not finish in time', async () => {
    await expect(waitOrAbort(pending, 'the barrier', Deadline.after(5))).rejects.toMatchObject({
      code: 'ERR_TSR_TIMEOUT',
      message: expect.stringContaining('the barrier did not finish within 5 ms') as unknown,
    })
  })

  it('ends at the abort, with its reason as cause', async () => {
    const abort = new AbortController()
    const reason = new Error('enough')
    const waiting = waitOrAbort(pending, 'the barrier', Deadline.never, abort.signal)
    abort.abort(reason)
    await expect(waiting).rejects.toMatchObject({ ...ABORTED, cause: reason })
  })

  it('does not wait for a signal that has been aborted', async () => {
    const waiting = waitOrAbort(pending, 'x', Deadline.never, AbortSignal.abort())
    await expect(waiting).rejects.toMatchObject(ABORTED)
  })

  it('leaves no rejection unhandled that comes after the abort', async () => {
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

  it('leaves no listener behind', async () => {
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
