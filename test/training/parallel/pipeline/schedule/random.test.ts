import fc from 'fast-check'
import { isTsrError } from '@tsrun/core'
import { executionOrder } from '../../../../../packages/training/src/parallel/pipeline/schedule/dependencies.ts'
import {
  customSchedule,
  formatAction,
  schedule,
  scheduleNames,
  validateSchedule,
} from '../../../../../packages/training/src/parallel/pipeline/schedule/index.ts'
import { hasCycle, randomLists } from '../../support/random-lists.ts'

const extent = fc.record({
  stages: fc.integer({ min: 1, max: 8 }),
  microbatches: fc.integer({ min: 1, max: 20 }),
})

describe('random schedules', () => {
  it('every named schedule validates and runs, at any size', () => {
    fc.assert(
      fc.property(extent, fc.constantFrom(...scheduleNames), (size, name) => {
        const made = schedule(name, size)
        made.validate()
        expect(made.simulate().spans).toHaveLength(
          (name === 'zb-h1' ? 3 : 2) * size.stages * size.microbatches,
        )
      }),
    )
  })

  it('valid lists never deadlock, and invalid ones have a cycle', () => {
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

  it('puts the actions into an order in which each has what it needs', () => {
    fc.assert(
      fc.property(extent, fc.constantFrom(...scheduleNames), (size, name) => {
        const { actions } = schedule(name, size)
        const seen = new Set<string>()
        for (const action of executionOrder(actions)) {
          const { kind, stage } = action
          if (kind === 'F' && stage > 0) {
            expect(seen).toContain(formatAction({ ...action, stage: stage - 1 }))
          }
          if (kind === 'B' && stage < size.stages - 1) {
            expect(seen).toContain(formatAction({ ...action, stage: stage + 1 }))
          }
          seen.add(formatAction(action))
        }
      }),
    )
  })
})
