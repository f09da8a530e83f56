import fc from 'fast-check'
import type { Action, ActionKind } from '@tsrun/training/planning'

/** Lists with the right actions on random ranks, shuffled within what a stage alone allows. */
export interface RandomLists {
  readonly lists: Action[][]
  readonly microbatches: number
  /** Whether the order was taken from one possible execution, so that the lists can finish. */
  readonly possible: boolean
}

const shape = fc.record({
  ranks: fc.integer({ min: 1, max: 3 }),
  more: fc.integer({ min: 0, max: 3 }),
  microbatches: fc.integer({ min: 1, max: 3 }),
  possible: fc.boolean(),
  picks: fc.array(fc.nat({ max: 5040 }), { minLength: 64, maxLength: 64 }),
})

export const randomLists = shape.map(
  ({ ranks, more, microbatches, possible, picks }): RandomLists => {
    let drawn = 0
    const pick = (among: number): number => picks[drawn++ % picks.length]! % among
    const stages = ranks + more
    // Every rank has a stage, the others go anywhere; then the places are shuffled.
    const places = Array.from({ length: stages }, (_, at) => (at < ranks ? at : pick(ranks)))
    const placement: number[] = []
    while (places.length > 0) placement.push(...places.splice(pick(places.length), 1))
    const last = placement.length - 1
    const lists: Action[][] = Array.from({ length: ranks }, () => [])
    const done = new Set<string>()
    const key = (kind: string, stage: number, microbatch: number) =>
      `${kind} ${stage} ${microbatch}`
    const waiting: Action[] = []
    for (let stage = 0; stage <= last; stage++) {
      for (let microbatch = 0; microbatch < microbatches; microbatch++) {
        const kinds: ActionKind[] = pick(2) === 0 ? ['F', 'B'] : ['F', 'I', 'W']
        for (const kind of kinds) waiting.push({ kind, stage, microbatch })
      }
    }
    const isReady = ({ kind, stage, microbatch: m }: Action): boolean => {
      if (kind === 'W') return done.has(key('gradient', stage, m))
      if (kind === 'F') return !possible || stage === 0 || done.has(key('F', stage - 1, m))
      const own = done.has(key('F', stage, m))
      return own && (!possible || stage === last || done.has(key('gradient', stage + 1, m)))
    }
    while (waiting.length > 0) {
      const ready = waiting.filter(isReady)
      const action = ready[pick(ready.length)]!
      waiting.splice(waiting.indexOf(action), 1)
      lists[placement[action.stage]!]!.push(action)
      const { kind, stage, microbatch } = action
      if (kind !== 'W') done.add(key(kind === 'F' ? 'F' : 'gradient', stage, microbatch))
    }
    return { lists, microbatches, possible }
  },
)

/** Whether the lists can never finish, told by another road: a cycle in who waits for whom. */
export function hasCycle(lists: readonly (readonly Action[])[]): boolean {
  const all = lists.flat()
  const last = Math.max(...all.map(({ stage }) => stage))
  const find = (kinds: string, stage: number, microbatch: number): Action =>
    all.find(
      (other) =>
        kinds.includes(other.kind) && other.stage === stage && other.microbatch === microbatch,
    )!
  const before = new Map<Action, Action[]>()
  for (const list of lists) {
    list.forEach((action, at) => {
      const { kind, stage, microbatch } = action
      const waits = at > 0 ? [list[at - 1]!] : []
      if (kind === 'F' && stage > 0) waits.push(find('F', stage - 1, microbatch))
      if (kind === 'B' || kind === 'I') {
        waits.push(find('F', stage, microbatch))
        if (stage < last) waits.push(find('BI', stage + 1, microbatch))
      }
      if (kind === 'W') waits.push(find('I', stage, microbatch))
      before.set(action, waits)
    })
  }
  const state = new Map<Action, 'open' | 'done'>()
  const visit = (action: Action): boolean => {
    if (state.has(action)) return state.get(action) === 'open'
    state.set(action, 'open')
    const found = before.get(action)!.some(visit)
    state.set(action, 'done')
    return found
  }
  return all.some(visit)
}
