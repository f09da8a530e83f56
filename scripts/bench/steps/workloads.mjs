/**
 * What is measured, the same for all systems, in float32 and on one thread.
 *
 * @typedef {object} Workload
 * @property {string} name
 * @property {'mlp' | 'matmul' | 'gpt' | 'cnn' | 'norm'} kind - `norm`: batch normalization of images of 28 x 28
 * @property {number} layers - of the network, each from `width` to `width`; blocks of a GPT; 1 for a product
 * @property {number} width - of the network, or of the square matrices; the channels of the first
 *   convolution of a CNN, or those that are normalized
 * @property {number} batch - rows, sequences or images
 * @property {number} [heads] - of a GPT, as are `block`, `vocabulary` and `tied`
 * @property {number} [block] - tokens in a sequence
 * @property {number} [vocabulary]
 * @property {boolean} [tied] - whether the head has the table of the tokens
 * @property {boolean} [updates] - false: the step of `steps` ends with the backward pass
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
    warmUps: 1000,
    repeats: 300,
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
  gptSmall: gpt('gpt-4x64', { layers: 4, width: 64, heads: 4, block: 64, batch: 8 }),
  gptMedium: gpt('gpt-4x128', { layers: 4, width: 128, heads: 4, block: 64, batch: 12 }),
  gptLarge: gpt('gpt-6x384', { layers: 6, width: 384, heads: 6, block: 256, batch: 4 }),
  gpt2: {
    ...gpt('gpt2-small', { layers: 12, width: 768, heads: 12, block: 128, batch: 1 }),
    ...{ vocabulary: 50_257, tied: true, updates: false, warmUps: 2, seconds: 20 },
  },
  cnnSmall: cnn('cnn-16x32', { width: 16, batch: 64 }),
  cnnLarge: cnn('cnn-32x64', { width: 32, batch: 128 }),
  norm: {
    ...cnn('batchnorm-32', { width: 32, batch: 64 }),
    ...{ kind: 'norm', layers: 1, updates: false },
  },
}

/**
 * @param {string} name
 * @param {Pick<Workload, 'layers' | 'width' | 'batch'> & { heads: number, block: number }} sizes
 * @returns {Workload}
 */
function gpt(name, sizes) {
  return { name, kind: 'gpt', ...sizes, vocabulary: 65, warmUps: 50, repeats: 100, seconds: 6 }
}

/**
 * @param {string} name
 * @param {Pick<Workload, 'width' | 'batch'>} sizes
 * @returns {Workload}
 */
function cnn(name, sizes) {
  return { name, kind: 'cnn', layers: 2, ...sizes, warmUps: 20, repeats: 50, seconds: 5 }
}

export const workloads = Object.values(table)

/**
 * Whether plain JavaScript measures it: a forward pass of the others takes it a second.
 *
 * @param {Workload} workload
 */
export function isForCpu({ kind, width }) {
  return kind === 'mlp' && width <= 128
}

/**
 * Floating point operations of the products in a forward pass; 0 without products.
 *
 * @param {Workload} workload
 */
export function operationsOf({ kind, layers, width, batch, block = 0, vocabulary = 0 }) {
  if (kind === 'norm') return 0
  if (kind === 'gpt') {
    const tokens = batch * block
    // A query attends to half of the keys on average.
    const attention = 2 * block * width
    return tokens * (layers * (24 * width * width + attention) + 2 * width * vocabulary)
  }
  if (kind === 'cnn') {
    const second = 9 * width * 14 * 14 * 2 * width
    return firstOf({ kind, width, batch }) + 2 * batch * (second + 98 * width * 128 + 128 * 10)
  }
  return 2 * layers * batch * width * width
}

/**
 * Floating point operations of the products in a step: a backward pass has two products for each of the
 * forward pass, but does not need the gradient of the model's input.
 *
 * @param {Workload} workload
 */
export function stepOperationsOf(workload) {
  if (workload.kind === 'matmul') return operationsOf(workload)
  return 3 * operationsOf(workload) - firstOf(workload)
}

/** @param {Pick<Workload, 'kind' | 'width' | 'batch'>} workload - floating point operations of its first layer */
function firstOf({ kind, width, batch }) {
  if (kind === 'cnn') return 2 * batch * 9 * width * 28 * 28
  return kind === 'mlp' ? 2 * batch * width * width : 0
}
