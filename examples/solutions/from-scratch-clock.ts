// From scratch, question 2: the clock cycles of a step.
//
//   npx tsx examples/solutions/from-scratch-clock.ts
//
// In each cycle, a rank runs the next pass of its list if the message that it needs was sent in an earlier
// cycle. All passes take one cycle. If no rank can continue, the lists wait for each other.

import { prove } from '../lib/prove.ts'

/** `F3`: the forward pass of micro-batch 3; `B3`: its backward pass. */
type Pass = `${'F' | 'B'}${number}`

const upTo = (count: number): number[] => Array.from({ length: count }, (_, m) => m)
const F = (m: number): Pass => `F${m}`
const B = (m: number): Pass => `B${m}`

const schedules: Record<string, (rank: number, S: number, M: number) => Pass[]> = {
  naive: (_rank, _S, M) => upTo(M).flatMap((m) => [F(m), B(m)]),
  gpipe: (_rank, _S, M) => [...upTo(M).map(F), ...upTo(M).map(B)],
  '1f1b': (rank, S, M) => {
    const ahead = Math.min(S - 1 - rank, M)
    const steady = upTo(M - ahead).flatMap((m) => [F(m + ahead), B(m)])
    return [...upTo(ahead).map(F), ...steady, ...upTo(ahead).map((m) => B(M - ahead + m))]
  },
}

/** The cycles until all lists have ended; Infinity if they wait for each other. */
function cyclesOf(lists: readonly (readonly Pass[])[]): number {
  const last = lists.length - 1
  const done = lists.map(() => new Set<Pass>())
  for (let cycle = 0; ; cycle++) {
    if (lists.every((list, rank) => done[rank]!.size === list.length)) return cycle
    const before = done.map((passes) => new Set(passes))
    for (const [rank, list] of lists.entries()) {
      const pass = list[before[rank]!.size]
      if (pass === undefined) continue
      const isSource = rank === (pass.startsWith('F') ? 0 : last)
      const from = pass.startsWith('F') ? rank - 1 : rank + 1
      const isReady = isSource
        ? pass.startsWith('F') || before[rank]!.has(F(Number(pass.slice(1))))
        : before[from]!.has(pass)
      if (isReady) done[rank]!.add(pass)
    }
    if (done.every((passes, rank) => passes.size === before[rank]!.size)) return Infinity
  }
}

const [S, M] = [4, 8]
const cycles = Object.entries(schedules).map(([name, passesOf]) => {
  const count = cyclesOf(upTo(S).map((rank) => passesOf(rank, S, M)))
  console.log(`${name}: ${count} cycles, idle ${((100 * (count - 2 * M)) / count).toFixed(1)} %`)
  return count
})
prove('naive takes 2 S M cycles', cycles[0] === 2 * S * M)
prove(
  'GPipe and 1F1B take 2 (M + S - 1)',
  cycles.slice(1).every((c) => c === 2 * (M + S - 1)),
)
const early = upTo(S).map((rank) => schedules['gpipe']!(rank, S, M))
early[0] = [B(0), ...early[0]!.filter((pass) => pass !== B(0))]
prove('a backward pass before its forward pass waits forever', cyclesOf(early) === Infinity)
