import { median, significant } from '../figures.mjs'

/** Units of each layer. */
export const WIDTH = 1024
/** A parameter and its two moments of Adam, in float32. */
const BYTES_OF_PARAMETER = 12

/** Bytes that a layer adds to a checkpoint. */
export const bytesOfLayer = BYTES_OF_PARAMETER * (WIDTH + 1) * WIDTH

/**
 * @typedef {object} Save - what one save has measured, in milliseconds
 * @property {number} stallMs - until the call has returned
 * @property {readonly number[]} before - the steps before it
 * @property {readonly number[]} during - the steps until it was done
 */

/**
 * Medians over the saves of all rounds.
 *
 * @param {ReadonlyMap<string, readonly (readonly Save[])[]>} rounds - by system
 * @param {number} bytes - of a checkpoint
 */
export function summarize(rounds, bytes) {
  return [...rounds].map(([system, list]) => {
    const saves = list.flat()
    const middle = (/** @type {(save: Save) => number} */ of) =>
      significant(median(saves.map(of)), 3)
    const excessMs = middle((save) => excess(save.during, save.before))
    return {
      system,
      megabytes: significant(bytes / 1e6, 3),
      firstStallMs: significant(median(list.map((own) => own[0]?.stallMs ?? NaN)), 3),
      stallMs: middle((save) => save.stallMs),
      stepMs: middle((save) => median(save.before)),
      steps: median(saves.map(({ during }) => during.length)),
      excessMs,
      excessPer100MB: significant((excessMs * 1e8) / bytes, 3),
      quietExcessMs: middle(
        ({ before, during }) => (excess(before, before) * during.length) / before.length,
      ),
    }
  })
}

/**
 * By how much steps are longer than the median of others, summed up.
 *
 * @param {readonly number[]} steps
 * @param {readonly number[]} others
 */
function excess(steps, others) {
  const usual = median(others)
  return steps.reduce((sum, time) => sum + time - usual, 0)
}
