import { stepArgument } from './plan.mjs'
import { interleave, summarize } from './rounds.mjs'
import { measure, nameOf } from './systems/system.mjs'

/**
 * @typedef {object} Campaign
 * @property {readonly import('./systems/system.mjs').System[]} systems
 * @property {readonly import('./plan.mjs').Step[]} steps
 * @property {number} ranks
 * @property {number} runs - rounds
 * @property {(round: number) => boolean} [goesOn] - whether there is time for this round
 */

/**
 * Measures the systems in turn and says on stderr what runs, and what failed.
 *
 * @param {Campaign} campaign
 */
export async function measureAll({ systems, steps, ranks, runs, goesOn }) {
  let failures = 0
  const rounds = await interleave(
    systems,
    runs,
    (system, round) => {
      console.error(`round ${round} of ${runs}: ${nameOf(system)}, ${ranks} ranks`)
      return measure(system, ranks, steps.map(stepArgument))
    },
    (_, error) => {
      failures++
      console.error(error instanceof Error ? error.message : error)
    },
    goesOn,
  )
  return {
    rows: [...rounds].flatMap(([system, samples]) => summarize(system, ranks, samples)),
    rounds: Math.max(0, ...[...rounds.values()].map(({ length }) => length)),
    failures,
  }
}
