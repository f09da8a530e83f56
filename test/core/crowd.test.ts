import { Crowd } from '@tsrun/core'

describe('of a crowd', () => {
  it('the oldest of the address with the most gives way', () => {
    const crowd = new Crowd<string>()
    crowd.add('far', '10.0.0.9')
    for (const name of ['a', 'b', 'c']) crowd.add(name, '10.0.0.1')
    expect(crowd.first).toBe('a')
    crowd.delete('a')
    expect([crowd.first, crowd.size]).toEqual(['b', 3])
    crowd.delete('b')
    // where all have as many, the first address that came
    expect(crowd.first).toBe('far')
  })

  it('nobody is left in the end', () => {
    const crowd = new Crowd<number>()
    for (let i = 0; i < 1000; i++) crowd.add(i, `address ${i % 7}`)
    for (let i = 1000; i > 0; i--) {
      expect(crowd.size).toBe(i)
      expect(crowd.delete(crowd.first!)).toBe(true)
    }
    expect([crowd.first, crowd.size, crowd.values()]).toEqual([undefined, 0, []])
    expect(crowd.delete(5)).toBe(false)
  })
})
