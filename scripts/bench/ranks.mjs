// What the programs of ranks share: the network that they train, and what they do without a backend.
import { tf } from '@tsrun/training'

/** @typedef {import('./steps/workloads.mjs').Workload} Workload */

/**
 * What `measure` has found, or why there is nothing to find: this machine does not have the backend.
 *
 * @template T
 * @param {() => Promise<T>} measure - loads the backend first
 * @returns {Promise<T | { skipped: string }>}
 */
export async function unlessMissing(measure) {
  try {
    return await measure()
  } catch (error) {
    const { code, cause } = /** @type {NodeJS.ErrnoException & { cause?: Error }} */ (error)
    if (code !== 'ERR_TSR_BACKEND') throw error
    return { skipped: cause?.message ?? code }
  }
}

/** @param {Pick<Workload, 'layers' | 'width'>} workload */
export function sizesOf({ layers, width }) {
  return { layers, inputs: width, hidden: width, outputs: width }
}

/**
 * Inputs [rows, width] and labels [rows], which the caller disposes.
 *
 * @param {Pick<Workload, 'width'>} workload
 * @param {number} rows
 */
export function batchOf({ width }, rows) {
  const x = tf.randomNormal([rows, width], 0, 1, 'float32', 1)
  const labels = tf.tensor1d(
    Int32Array.from({ length: rows }, (_, row) => row % width),
    'int32',
  )
  return { x, labels }
}
