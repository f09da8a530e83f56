import { choice, declareOptions, having, type Rules } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Optimizer } from '../../optim/optimizer.ts'

/** Options of `join` of data parallel training. */
export interface JoinOptions {
  /** The optimizer that the loop uses. At the end all ranks get the same optimizer state. */
  readonly optimizer: Pick<Optimizer, 'state' | 'loadState' | 'learningRate'>
  /**
   * The divisor of the summed gradients: the number of ranks that still have data (`live`,
   * default), or of all ranks (`world`).
   */
  readonly divideBy?: 'live' | 'world'
}

/** @throws ERR_TSR_ARGUMENT */
export const readJoinOptions = declareOptions({
  optimizer: having<JoinOptions['optimizer']>(
    ['state', 'loadState'],
    'the optimizer of the loop, whose state ranks that run out of data need',
  ),
  divideBy: choice('live', 'world').default('live'),
} satisfies Rules<JoinOptions>)

const noop = () => undefined

export type JoinedLoop = ReturnType<typeof joinedLoop>

/** Counts the ranks that still have data in each step of a loop of `join`. */
export function joinedLoop(group: ProcessGroup, divideBy: Required<JoinOptions>['divideBy']) {
  const live = new Float64Array(1)
  let announced: Work | undefined
  const countLive = async () => {
    await announced
    return live[0]!
  }
  return {
    /** Whether this rank has already called `announce` in the current step. */
    isAnnounced: () => announced !== undefined,

    /**
     * Announces whether this rank has data for the step. Only the first call per step counts, and it
     * must precede the step's gradients.
     */
    announce(hasData: boolean) {
      if (announced !== undefined) return
      live[0] = hasData ? 1 : 0
      announced = group.allReduce(live, { label: 'ranks that still have data' })
    },

    /** Waits for the announcements of all ranks. @returns the number of ranks that have data */
    live: countLive,

    /** Ends the announcements of the step. @returns the divisor of the summed gradients */
    async next() {
      const count = await countLive()
      announced = undefined
      return divideBy === 'live' ? count : group.size
    },

    /** Ends the loop. If it has failed, nobody awaits its last announcement. */
    dispose() {
      announced?.then(noop, noop)
    },
  }
}
