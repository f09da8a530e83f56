import fc from 'fast-check'
import { explainSimulation, schedule, scheduleNames } from '@tsrun/training/planning'

const cases = fc.record({
  name: fc.constantFrom(...scheduleNames),
  ranks: fc.integer({ min: 1, max: 5 }),
  microbatches: fc.integer({ min: 1, max: 9 }),
  transfer: fc.constantFrom(0, 0.25, 3),
  cores: fc.constantFrom(1, 2, Infinity),
})

describe('explainSimulation', () => {
  it('accounts for all idle time of each rank, and for the length of the step', () => {
    fc.assert(
      fc.property(cases, ({ name, ranks, microbatches, transfer, cores }) => {
        const stages = name.endsWith('-v') ? 2 * ranks : ranks
        const simulation = schedule(name, { stages, microbatches }).simulate({ transfer, cores })
        const { idle, criticalPath } = explainSimulation(simulation)
        simulation.ranks.forEach((each, rank) => {
          const own = idle.filter((time) => time.rank === rank)
          const sum = own.reduce((total, { start, end }) => total + end - start, 0)
          expect(sum).toBeCloseTo(each.idle, 9)
        })
        if (cores === Infinity) expect(idle.some(({ reason }) => reason === 'core')).toBe(false)
        if (transfer === 0) expect(idle.some(({ reason }) => reason === 'message')).toBe(false)
        expect(criticalPath[0]!.start).toBe(0)
        expect(criticalPath.at(-1)!.end).toBe(simulation.makespan)
        criticalPath.slice(1).forEach((action, index) => {
          const gap = action.start - criticalPath[index]!.end
          expect([0, transfer]).toContainEqual(expect.closeTo(gap, 9))
        })
      }),
      { numRuns: 300 },
    )
  })

  it('names the action that a rank waits for, and the message in flight', () => {
    const simulation = schedule('gpipe', { stages: 2, microbatches: 1 }).simulate({ transfer: 1 })
    const { idle } = explainSimulation(simulation)
    expect(idle.map(({ rank, start, end, reason }) => [rank, start, end, reason])).toEqual([
      [0, 1, 5, 'wait'],
      [0, 5, 6, 'message'],
      [1, 0, 1, 'fill'],
      [1, 1, 2, 'message'],
      [1, 5, 8, 'drain'],
    ])
    expect(idle[0]!.text).toBe('rank 0 waits for 1B0 on rank 1, to run 0B0')
  })
})
