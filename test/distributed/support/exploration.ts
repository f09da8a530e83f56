import { SteppedWorld } from './stepped-world.ts'
import { turns } from './outcome.ts'

/** What ranks do, and what may happen to them at any moment. */
export interface Scenario<T = unknown> {
  readonly size: number
  /** By rank: which host. Default: each is on a host of its own. */
  readonly hosts?: readonly number[]
  /** Starts what each rank does. Called once. The signal is aborted when the run is given up. */
  readonly start: (world: SteppedWorld, signal: AbortSignal) => Promise<T>[]
  /** Each happens once, before the end. */
  readonly events?: readonly ((world: SteppedWorld) => void)[]
  /** Called when all have ended, with what each ended with. @throws when that must not be */
  readonly check: (outcomes: PromiseSettledResult<T>[]) => void
}

/** A decision: who moves, and whether by whole pieces or by single bytes; or an event. */
interface Decision {
  readonly taken: number
  readonly options: number
}

/** Milliseconds in which nothing moves, after which the ranks will wait for good. */
const STILL = 5000

/**
 * Runs a scenario once for every way in which its first `depth` steps can go: in each, any rank moves, by
 * whole pieces or byte by byte, or an event happens. From then on all ranks move in turn. Steps in which
 * nothing would move are left out: they lead to what others lead to.
 *
 * @returns how many runs that were
 * @throws what `check` throws, or that the ranks stand still, with the decisions that led there
 */
export async function explore<T>(create: () => Scenario<T>, depth: number): Promise<number> {
  let path: number[] | undefined = []
  let runs = 0
  while (path !== undefined) {
    const decisions: Decision[] = []
    try {
      if (await runOnce(create(), path, depth, decisions)) runs++
    } catch (error) {
      const taken = decisions.map((one) => one.taken).join(', ')
      throw new Error(`after the decisions ${taken}`, { cause: error })
    }
    path = nextPath(decisions)
  }
  return runs
}

function nextPath(decisions: readonly Decision[]): number[] | undefined {
  for (let i = decisions.length - 1; i >= 0; i--) {
    const { taken, options } = decisions[i]!
    if (taken + 1 < options) return [...decisions.slice(0, i).map((one) => one.taken), taken + 1]
  }
  return undefined
}

/** Returns false when a step moved nothing, so that the rest of the run is that of another. */
async function runOnce<T>(
  scenario: Scenario<T>,
  path: readonly number[],
  depth: number,
  decisions: Decision[],
): Promise<boolean> {
  const { size, hosts } = scenario
  let isTrickling = false
  const world = new SteppedWorld(size, {
    memory: 2 * 1024 * 1024,
    portion: (bytes) => (isTrickling ? 1 : bytes),
    ...(hosts && { hosts }),
  })
  const events = [...(scenario.events ?? [])]
  const state = { isOver: false }
  const givenUp = new AbortController()
  const ends = Promise.allSettled(scenario.start(world, givenUp.signal))
  void ends.then(() => (state.isOver = true))
  await turns(1)
  while (!state.isOver && decisions.length < depth) {
    const options = 2 * size + events.length
    const taken = path[decisions.length] ?? 0
    decisions.push({ taken, options })
    if (taken >= 2 * size) {
      events.splice(taken - 2 * size, 1)[0]!(world)
    } else {
      isTrickling = taken >= size
      const moved = world.step([taken % size])
      isTrickling = false
      if (!moved) {
        givenUp.abort()
        return false
      }
    }
    await turns(1)
  }
  for (const event of events) event(world)
  let lastMoved = performance.now()
  while (!state.isOver) {
    if (world.step()) lastMoved = performance.now()
    else if (performance.now() - lastMoved > STILL) {
      givenUp.abort()
      throw new Error('the ranks stand still')
    }
    await turns(1)
  }
  scenario.check(await ends)
  return true
}
