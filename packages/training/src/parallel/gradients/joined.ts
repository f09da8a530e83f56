import type { ProcessGroup, Work } from '@tsrun/distributed'

const noop = () => undefined

/** A loop of `DataParallel.join`, in which a rank may run out of data before the others. */
export type JoinedLoop = ReturnType<typeof joinedLoop>

/** Counts the ranks that still have data in each step of a loop of `join`. */
export function joinedLoop(group: ProcessGroup) {
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
      return count
    },

    /** Ends the loop. If the loop failed, nobody awaits its last announcement, so errors are ignored. */
    dispose() {
      announced?.then(noop, noop)
    },
  }
}
