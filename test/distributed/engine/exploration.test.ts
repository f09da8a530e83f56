import { explore, type Scenario } from '../support/exploration.ts'
import { explorations } from './support/explorations.ts'

// More steps are in exploration.nightly.test.ts.
describe('each interleaving of the first steps', () => {
  it.each(Object.entries(explorations))('ends correctly: %s', async (...[, create]) => {
    expect(await explore(create, 3)).toBeGreaterThan(1)
  })
})

describe('an exploration of interleavings', () => {
  it('finds the only interleaving that fails', async () => {
    const order = (): Scenario => {
      const events: string[] = []
      return {
        size: 2,
        start: ({ groups }) =>
          groups.map(async (group) => {
            await group.barrier()
          }),
        events: ['a', 'b', 'c'].map((name) => () => {
          events.push(name)
        }),
        check: () => {
          if (events.join('') === 'cab') throw new Error('cab')
        },
      }
    }
    await expect(explore(order, 5)).rejects.toThrow(/^after the decisions .*6/)
  })
})
