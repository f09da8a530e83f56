import type { TsrError } from '@tsrun/core'
import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import fc from 'fast-check'
import { hostsOf } from '../../support/host-layouts.ts'
import { start, steps, type Step } from '../../support/programs.ts'
import { turns } from '../../support/outcome.ts'

interface FaultyProgram {
  readonly size: number
  readonly seed: number
  readonly steps: readonly Step[]
  /** Who gives up which step, so many turns of the event loop after the call. */
  readonly aborts: readonly {
    readonly rank: number
    readonly step: number
    readonly turns: number
  }[]
}

const programs: fc.Arbitrary<FaultyProgram> = fc.record({
  size: fc.integer({ min: 2, max: 5 }),
  seed: fc.nat(),
  steps: fc.array(steps, { minLength: 1, maxLength: 25 }),
  aborts: fc.array(
    fc.record({ rank: fc.nat(), step: fc.nat(), turns: fc.integer({ min: 0, max: 6 }) }),
    { minLength: 1, maxLength: 3 },
  ),
})

const consequences = /^ERR_TSR_(OPERATION_ABORTED|PEER_FAILED|GROUP_FAILED)$/

/** Starts all steps on one group; says how each of them ended. */
async function runSteps(
  group: ProcessGroup,
  { steps: list, size, aborts }: FaultyProgram,
  isFaulty: boolean,
): Promise<void> {
  const ends: Promise<void>[] = []
  for (const [i, step] of list.entries()) {
    if (step.kind === 'wait') {
      await turns(step.order % 4)
      continue
    }
    const mine = isFaulty
      ? aborts.filter((abort) => abort.rank % size === group.rank && abort.step % list.length === i)
      : []
    const controller = new AbortController()
    const started = start(group, step, i, isFaulty ? { signal: controller.signal } : {})
    if (started === undefined) continue
    const { work, check } = started
    ends.push(
      (async () => {
        try {
          const value = await work
          // what ends well must be right, whatever happened to the others
          if (!check(value)) throw new Error(`wrong result of step ${i}`)
        } catch (error) {
          const { code = '' } = error as Partial<TsrError>
          if (!isFaulty || !consequences.test(code)) throw error
        }
      })(),
    )
    for (const { turns: count } of mine) {
      await turns(count)
      controller.abort()
    }
  }
  await Promise.all(ends)
}

async function run(program: FaultyProgram): Promise<void> {
  const { size, seed } = program
  await runWorld(
    { size, seed, memory: 96 * 1024 * 1024, hosts: hostsOf(program) },
    async (world) => {
      const faulty = await world.newGroup([...world.ranks])
      const healthy = await world.newGroup([...world.ranks].reverse())
      await Promise.all([runSteps(faulty, program, true), runSteps(healthy, program, false)])
    },
  )
}

/** What programs with aborts promise, with this many random programs. */
export function describeFaultyPrograms(numRuns: number): void {
  describe('programs with aborts at random places', () => {
    it(`end on every rank with a result or an error, without affecting other groups, ${numRuns} programs`, async () => {
      await fc.assert(fc.asyncProperty(programs, run), { numRuns })
    })
  })
}
