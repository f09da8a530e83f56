import { Deadline, retry } from '@tsrun/core'

describe('retry', () => {
  it('goes on until an attempt succeeds, and tells of the others', async () => {
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
        firstPause: 1,
        longestPause: 2,
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
      deadline: Deadline.after(30),
      firstPause: 1,
      longestPause: 5,
    })
    await expect(attempts).rejects.toThrow(/^no \d+$/)
    expect(tries).toBeGreaterThan(1)
  })

  it('does not repeat what will never succeed', async () => {
    let tries = 0
    const attempts = retry(() => Promise.reject(new Error(`no ${String(++tries)}`)), {
      deadline: Deadline.never,
      isTransient: () => false,
    })
    await expect(attempts).rejects.toThrow('no 1')
    expect(tries).toBe(1)
  })

  it('ends its pause at an abort', async () => {
    const abort = new AbortController()
    const attempts = retry(() => Promise.reject(new Error('no')), {
      deadline: Deadline.never,
      firstPause: 1e6,
      longestPause: 1e6,
      signal: abort.signal,
      onFailure: () => {
        abort.abort()
      },
    })
    await expect(attempts).rejects.toThrow(/abort/)
  })
})
