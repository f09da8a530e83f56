import { median, percentile, significant } from '../figures.mjs'
import { busFactor, stepArgument } from './plan.mjs'
import { measure, nameOf } from './systems.mjs'

/**
 * @typedef {import('./systems.mjs').System} System
 * @typedef {import('./systems.mjs').Sample} Sample
 *
 * @typedef {object} Row - one line of the result
 * @property {import('./plan.mjs').Operation} op
 * @property {number} bytes - of the full buffer
 * @property {number} ranks
 * @property {System['transport']} transport
 * @property {System['engine']} engine
 * @property {System['system']} system
 * @property {number} p50Us
 * @property {number} p99Us
 * @property {number} algbwGBs
 * @property {number} busbwGBs
 */

/**
 * Measures every system once in each round (ours, peer, ours, peer), so that a change in the load of
 * the machine affects all of them. A system that fails is left out of the later rounds.
 *
 * @param {readonly System[]} systems
 * @param {number} runs
 * @param {(system: System, round: number) => Promise<Sample[]>} measure
 * @param {(system: System, error: unknown) => void} failed
 * @param {(round: number) => boolean} [goesOn] - whether to start this round
 * @returns {Promise<Map<System, Sample[][]>>} what each round measured
 */
export async function interleave(systems, runs, measure, failed, goesOn = () => true) {
  /** @type {Map<System, Sample[][]>} */
  const rounds = new Map(systems.map((system) => [system, []]))
  for (let round = 1; round <= runs && goesOn(round); round++) {
    for (const [system, samples] of rounds) {
      try {
        samples.push(await measure(system, round))
      } catch (error) {
        rounds.delete(system)
        failed(system, error)
      }
    }
  }
  return rounds
}

/**
 * For each step, the medians over the rounds of the percentiles of each round.
 *
 * @param {System} system
 * @param {number} ranks
 * @param {readonly (readonly Sample[])[]} rounds - one or more, of the same steps
 * @returns {Row[]}
 */
export function summarize({ system, transport, engine }, ranks, rounds) {
  return (rounds[0] ?? []).map(({ op, count }, step) => {
    const times = rounds.map((samples) => samples[step]?.us ?? [])
    const p50 = median(times.map((us) => percentile(us, 0.5)))
    const p99 = median(times.map((us) => percentile(us, 0.99)))
    const bytes = count * 4
    const rate = bytes / p50 / 1e3
    return {
      op,
      bytes,
      ranks,
      transport,
      engine,
      system,
      p50Us: significant(p50),
      p99Us: significant(p99),
      algbwGBs: significant(rate),
      busbwGBs: significant(rate * busFactor(op, ranks)),
    }
  })
}

/**
 * @typedef {object} Campaign
 * @property {readonly import('./systems.mjs').System[]} systems
 * @property {readonly import('./plan.mjs').Step[]} steps
 * @property {number} ranks
 * @property {number} runs - rounds
 * @property {(round: number) => boolean} [goesOn] - whether to start this round
 */

/**
 * Measures the systems in turn, and reports progress and failures on stderr.
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
