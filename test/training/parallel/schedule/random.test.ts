import fc from 'fast-check'
import { isTsrError } from '@tsrun/core'
import { executionOrder } from '../../../../packages/training/src/parallel/pipeline/schedule/dependencies.ts'
import {
  customSchedule,
  formatAction,
  schedule,
  scheduleNames,
  validateSchedule,
  type Action,
} from '../../../../packages/training/src/parallel/pipeline/schedule/index.ts'

const extent = fc.record({
  stages: fc.integer({ min: 1, max: 8 }),
  microbatches: fc.integer({ min: 1, max: 20 }),
})

/** Random lists with the right actions: each stage's, shuffled within what one rank alone allows. */
const shuffled = fc
  .record({
    stages: fc.integer({ min: 1, max: 4 }),
    microbatches: fc.integer({ min: 1, max: 4 }),
    seed: fc.array(fc.nat(), { minLength: 64, maxLength: 64 }),
  })
  .map(({ stages, microbatches, seed }) => {
    const pick = (among: number): number => (seed.push(seed.shift()!), seed.at(-1)! % among)
    return Array.from({ length: stages }, (_, stage) => {
      const list: Action[] = []
      const ready: Action[] = Array.from({ length: microbatches }, (_, microbatch) => ({
        kind: 'F',
        stage,
        microbatch,
      }))
      while (ready.length > 0) {
        const [action] = ready.splice(pick(ready.length), 1)
        list.push(action!)
        if (action!.kind === 'F') ready.push({ ...action!, kind: 'B' })
      }
      return list
    })
  })

/** Whether the lists can finish, told by another road: a cycle in who waits for whom. */
function hasCycle(lists: Action[][]): boolean {
  const before = new Map<string, string[]>()
  const last = lists.length - 1
  for (const list of lists) {
    list.forEach((action, at) => {
      const { kind, stage, microbatch } = action
      const waits: string[] = []
      if (at > 0) waits.push(formatAction(list[at - 1]!))
      if (kind === 'F' && stage > 0) waits.push(formatAction({ ...action, stage: stage - 1 }))
      if (kind === 'B' && stage < last) waits.push(formatAction({ ...action, stage: stage + 1 }))
      if (kind === 'B') waits.push(formatAction({ kind: 'F', stage, microbatch }))
      before.set(formatAction(action), waits)
    })
  }
  const state = new Map<string, 'open' | 'done'>()
  const visit = (name: string): boolean => {
    if (state.get(name) === 'open') return true
    if (state.get(name) === 'done') return false
    state.set(name, 'open')
    const found = before.get(name)!.some(visit)
    state.set(name, 'done')
    return found
  }
  return [...before.keys()].some(visit)
}

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

  it('what validates never deadlocks, what does not has a cycle', () => {
    let refused = 0
    fc.assert(
      fc.property(shuffled, (lists) => {
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

  it('puts the actions into an order in which none comes before what it needs', () => {
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
