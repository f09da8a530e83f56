import fc from 'fast-check'
import { customSchedule, type Action } from '@tsrun/training/planning'
import { failure } from '../../support/failure.ts'
import { hasCycle, randomLists } from '../../support/random-lists.ts'

describe('random action lists', () => {
  it('never deadlock if they are valid, and are impossible if they are not', () => {
    const seen = { valid: 0, refused: 0 }
    fc.assert(
      fc.property(randomLists, ({ lists, possible }) => {
        const impossible = hasCycle(lists)
        expect(impossible && possible).toBe(false)
        seen[impossible ? 'refused' : 'valid'] += 1
        if (impossible) {
          expect(() => customSchedule(lists)).toThrow(
            failure('ERR_TSR_SCHEDULE', /rank \d, action \d+: \S+ waits for ever/),
          )
        } else {
          const made = customSchedule(lists)
          const { spans } = made.simulate({ forward: 2, backward: 3, transfer: 1, cores: 2 })
          expect(spans).toHaveLength(lists.flat().length)
        }
      }),
      { numRuns: 400 },
    )
    expect(Math.min(seen.valid, seen.refused)).toBeGreaterThan(40)
  })

  it('are refused with one action too many, one too few, or one on the wrong rank', () => {
    fc.assert(
      fc.property(randomLists, fc.nat(), ({ lists }, at) => {
        fc.pre(!hasCycle(lists))
        const rank = at % lists.length
        const place = at % lists[rank]!.length
        const change = (edit: (list: Action[]) => void): Action[][] => {
          const copy = lists.map((list) => [...list])
          edit(copy[rank]!)
          return copy
        }
        const action = lists[rank]![place]!
        const twice = change((list) => list.splice(place, 0, action))
        expect(() => customSchedule(twice)).toThrow(failure('ERR_TSR_SCHEDULE', /runs twice/))
        const without = change((list) => list.splice(place, 1))
        expect(() => customSchedule(without)).toThrow(failure('ERR_TSR_SCHEDULE'))
        if (lists.length === 1 || lists[rank]!.every(({ stage }) => stage !== action.stage)) return
        const moved = change((list) => list.splice(place, 1))
        moved[(rank + 1) % lists.length]!.push(action)
        const others = moved[rank]!.some(({ stage }) => stage === action.stage)
        if (others) expect(() => customSchedule(moved)).toThrow(failure('ERR_TSR_SCHEDULE'))
      }),
      { numRuns: 200 },
    )
  })
})
