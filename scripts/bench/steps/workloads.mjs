/**
 * What is measured, the same for all systems, in float32 and on one thread.
 *
 * @typedef {object} Workload
 * @property {string} name
 * @property {'mlp' | 'matmul'} kind
 * @property {number} layers - of the network, each from `width` to `width`; 1 for a product
 * @property {number} width - of the network, or of the square matrices
 * @property {number} batch - rows
 * @property {number} warmUps
 * @property {number} repeats - fewer, but at least three, where these would take longer than `seconds`
 * @property {number} seconds
 */

/** @type {Readonly<Record<string, Workload>>} */
const table = {
  small: {
    name: 'mlp-16x128',
    kind: 'mlp',
    layers: 16,
    width: 128,
    batch: 32,
    warmUps: 50,
    repeats: 100,
    seconds: 4,
  },
  large: {
    name: 'mlp-4x1024',
    kind: 'mlp',
    layers: 4,
    width: 1024,
    batch: 128,
    warmUps: 3,
    repeats: 10,
    seconds: 4,
  },
  product: {
    name: 'matmul-1024',
    kind: 'matmul',
    layers: 1,
    width: 1024,
    batch: 1024,
    warmUps: 2,
    repeats: 10,
    seconds: 4,
  },
}

export const workloads = Object.values(table)

/**
 * Whether plain JavaScript measures it: a forward pass of the others takes it a second.
 *
 * @param {Workload} workload
 */
export function isForCpu({ width }) {
  return width <= 128
}

/**
 * Floating point operations of a forward pass.
 *
 * @param {Workload} workload
 */
export function operationsOf({ layers, width, batch }) {
  return 2 * layers * batch * width * width
}
