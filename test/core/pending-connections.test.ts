import { PendingConnections } from '@tsrun/core'

function pendingWith(limit: number): {
  readonly pending: PendingConnections<number>
  readonly dropped: number[]
} {
  const dropped: number[] = []
  const pending = new PendingConnections<number>({ limit, drop: (one) => dropped.push(one) })
  return { pending, dropped }
}

describe('pending connections', () => {
  it('are dropped only in favour of newer connections at the same stage', () => {
    const { pending, dropped } = pendingWith(10)
    for (let i = 0; i < 5; i++) pending.add(i, '10.0.0.1')
    for (let i = 0; i < 5; i++) pending.advance(i)
    for (let i = 5; i < 1000; i++) pending.add(i, '10.0.0.1')
    expect(pending.values()).toEqual(expect.arrayContaining([0, 1, 2, 3, 4, 999]))
    expect([pending.size, dropped.length]).toEqual([15, 985])
    // and those that speak compete with each other
    for (const one of pending.values()) pending.advance(one, 1)
    expect(pending.size).toBe(10)
  })

  it('always include the newest, up to half the limit', () => {
    const { pending } = pendingWith(100)
    const missing: number[] = []
    for (let i = 0; i < 1000; i++) {
      pending.add(i, '10.0.0.1')
      const held = new Set(pending.values())
      const newest = Array.from({ length: Math.min(i + 1, 50) }, (_, back) => i - back)
      missing.push(...newest.filter((one) => !held.has(one)))
    }
    expect(missing).toEqual([])
  })

  it.each([
    ['one address', () => '10.0.0.1'],
    ['a /64', (i: number) => `2001:db8::${i.toString(16)}`],
    ['a full /64', (i: number) => `2001:db8:0:0:1:2:3:${i.toString(16)}`],
    ['a few addresses', (i: number) => `127.0.0.${String(2 + (i % 5))}`],
  ])('of other addresses survive a flood from %s', (_, address) => {
    const { pending, dropped } = pendingWith(64)
    pending.add(-1, '127.0.0.1')
    pending.add(-2, '2001:db8:1::5')
    for (let i = 0; i < 1000; i++) pending.add(i, address(i))
    expect(dropped).toHaveLength(938)
    expect(pending.values()).toEqual(expect.arrayContaining([-1, -2]))
  })

  it('survive with some probability a flood in which each connection has its own address', () => {
    let kept = 0
    for (let trial = 0; trial < 200; trial++) {
      const { pending } = pendingWith(64)
      pending.add(-1, '10.0.0.1')
      for (let i = 0; i < 128; i++) pending.add(i, `10.1.${String(trial)}.${String(i)}`)
      if (pending.delete(-1)) kept++
    }
    // the chance is (1 - 1/32)^65, an eighth
    expect(kept).toBeGreaterThan(2)
  })

  it('are not added again by advance() after they are deleted', () => {
    const { pending } = pendingWith(4)
    pending.add(1, '10.0.0.1')
    expect([pending.delete(1), pending.delete(1)]).toEqual([true, false])
    pending.advance(1)
    expect([pending.size, pending.values()]).toEqual([0, []])
  })
})
