import fc from 'fast-check'
import { isTsrError } from '@tsrun/core'
import {
  customSchedule,
  formatAction,
  schedule,
  scheduleNames,
  validateSchedule,
} from '@tsrun/training/planning'
import { hasCycle, randomLists } from '../../support/random-lists.ts'

const extent = fc.record({
  stages: fc.integer({ min: 1, max: 8 }),
  microbatches: fc.integer({ min: 1, max: 20 }),
})

/** In a V each of as many ranks has two stages. */
function sizeFor(name: string, size: { stages: number; microbatches: number }): typeof size {
  return name.endsWith('-v') ? { ...size, stages: 2 * size.stages } : size
}

describe('pipeline schedules', () => {
  it('are valid and run at any size, if they are built in', () => {
    fc.assert(
      fc.property(extent, fc.constantFrom(...scheduleNames), (given, name) => {
        const size = sizeFor(name, given)
        const made = schedule(name, size)
        made.validate()
        const { spans } = made.simulate()
        expect(spans.filter(({ kind }) => kind === 'F')).toHaveLength(
          size.stages * size.microbatches,
        )
        expect(spans).toHaveLength(made.actions.flat().length)
      }),
    )
  })

  it('from random action lists never deadlock if they are valid, and have a cycle if they are invalid', () => {
    let refused = 0
    fc.assert(
      fc.property(randomLists, ({ lists }) => {
        let valid = true
        try {
          validateSchedule(lists)
        } catch (error) {
          if (!isTsrError(error)) throw error
          valid = false
          refused += 1
        }
        expect(valid).toBe(!hasCycle(lists))
        if (!valid) return
        const { spans, ranks } = customSchedule(lists).simulate({
          forward: 2,
          backward: 3,
          transfer: 1,
        })
        expect(spans).toHaveLength(lists.flat().length)
        expect(ranks.every(({ idle }) => idle >= 0)).toBe(true)
      }),
      { numRuns: 500 },
    )
    expect(refused).toBeGreaterThan(50)
  })

  it('are simulated so that each action ends after the actions that it needs', () => {
    fc.assert(
      fc.property(extent, fc.constantFrom(...scheduleNames), (given, name) => {
        const size = sizeFor(name, given)
        const { spans } = schedule(name, size).simulate()
        const seen = new Set<string>()
        for (const action of spans) {
          const { kind, stage } = action
          if (kind === 'F' && stage > 0) {
            expect(seen).toContain(formatAction({ ...action, stage: stage - 1 }))
          }
          if (kind === 'B' && stage < size.stages - 1) {
            const next = { ...action, stage: stage + 1 }
            const halves = formatAction({ ...next, kind: 'I' })
            expect(seen.has(formatAction(next)) || seen.has(halves)).toBe(true)
          }
          seen.add(formatAction(action))
        }
      }),
    )
  })
})
