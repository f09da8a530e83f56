// Compares the parts of tensors that ranks have with the whole tensors of a single process.

/** The tolerance of a value is atol + rtol |wanted|. */
const TOLERANCE = { rtol: 1e-5, atol: 1e-6 }

/**
 * @typedef {object} Errors
 * @property {number} loss - the largest |a - b| / (atol + rtol |b|), like the others; equal up to 1
 * @property {number} gradients
 * @property {number} norm
 * @property {number} parameters
 */

/** @returns {Errors} */
export function noErrors() {
  return { loss: 0, gradients: 0, norm: 0, parameters: 0 }
}

/**
 * Raises `errors` to those of one step where these are larger.
 *
 * @param {Errors} errors
 * @param {import('./layouts.mjs').PartResult} found
 * @param {import('./reference.mjs').StepResult} wanted
 */
export function addStep(errors, found, wanted) {
  errors.loss = Math.max(errors.loss, excess([found.loss], [wanted.loss]))
  errors.norm = Math.max(errors.norm, excess([found.norm], [wanted.norm]))
  errors.gradients = Math.max(errors.gradients, worst(found.gradients, wanted.gradients))
  errors.parameters = Math.max(errors.parameters, worst(found.parameters, wanted.parameters))
}

/** @param {{ [E in keyof Errors]: number | null }} errors - of JSON, which has null for Infinity */
export function isClose({ loss, gradients, norm, parameters }) {
  return [loss, gradients, norm, parameters].every((error) => error !== null && error <= 1)
}

/**
 * @param {readonly import('@tsrun/training').Piece[]} pieces
 * @param {ReadonlyMap<string, Float32Array>} wanted - whole tensors by name
 */
function worst(pieces, wanted) {
  return Math.max(
    0,
    ...pieces.map((piece) => {
      const whole = wanted.get(piece.name)
      return whole === undefined || /** @type {unknown} */ (piece.values) === undefined
        ? Infinity
        : excess(/** @type {Float32Array} */ (piece.values), partOf(whole, piece))
    }),
  )
}

/**
 * @param {ArrayLike<number>} found
 * @param {ArrayLike<number>} wanted
 */
function excess(found, wanted) {
  if (found.length !== wanted.length) return Infinity
  let most = 0
  for (let i = 0; i < wanted.length; i++) {
    const [a, b] = /** @type {[number, number]} */ ([found[i], wanted[i]])
    const over = Math.abs(a - b) / (TOLERANCE.atol + TOLERANCE.rtol * Math.abs(b))
    // The condition is true for NaN, too.
    if (!(over <= most)) most = Number.isNaN(over) ? Infinity : over
  }
  return most
}

/**
 * The values of a whole tensor that belong to a part, in the order of the part.
 *
 * @param {Float32Array} whole
 * @param {import('@tsrun/training').Part} part
 */
function partOf(whole, part) {
  if (part.box === undefined) return part.range === undefined ? whole : whole.slice(...part.range)
  return placesOf(part).map((place) => /** @type {number} */ (whole[place]))
}

/**
 * The indices in the whole tensor (row-major) of the values of a part.
 *
 * @param {import('@tsrun/training').Part} part
 * @returns {number[]}
 */
function placesOf({ shape, box, range }) {
  const { offset, extent } = box ?? { offset: shape.map(() => 0), extent: shape }
  const size = extent.reduce((a, b) => a * b, 1)
  const places = Array.from({ length: size }, (_, i) => {
    let [rest, place, stride] = [i, 0, 1]
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      const length = /** @type {number} */ (extent[axis])
      place += ((rest % length) + /** @type {number} */ (offset[axis])) * stride
      rest = Math.floor(rest / length)
      stride *= /** @type {number} */ (shape[axis])
    }
    return place
  })
  return range === undefined ? places : places.slice(...range)
}

/**
 * Puts together whole tensors from the parts of all ranks. A value that no rank has is NaN.
 *
 * @param {readonly import('@tsrun/training').Piece[]} pieces
 * @returns {Map<string, Float32Array>}
 */
export function assemble(pieces) {
  /** @type {Map<string, Float32Array>} */
  const tensors = new Map()
  for (const piece of pieces) {
    const { name, shape, values } = piece
    const size = shape.reduce((a, b) => a * b, 1)
    const whole = tensors.get(name) ?? new Float32Array(size).fill(NaN)
    tensors.set(name, whole)
    placesOf(piece).forEach((place, i) => (whole[place] = /** @type {number} */ (values[i])))
  }
  return tensors
}

/**
 * Whether the parts of all ranks together make up every wanted tensor.
 *
 * @param {readonly import('@tsrun/training').Piece[]} pieces
 * @param {ReadonlyMap<string, Float32Array>} wanted
 */
export function covers(pieces, wanted) {
  /** @type {Map<string, Set<number>>} */
  const places = new Map(Array.from(wanted.keys(), (name) => [name, new Set()]))
  for (const piece of pieces)
    for (const place of placesOf(piece)) places.get(piece.name)?.add(place)
  return Array.from(wanted).every(([name, { length }]) => places.get(name)?.size === length)
}

/**
 * @param {ReadonlyMap<string, Float32Array>} a
 * @param {ReadonlyMap<string, Float32Array>} b
 * @returns {boolean} whether they are bitwise identical
 */
export function isSame(a, b) {
  if (a.size !== b.size) return false
  return Array.from(a).every(([name, values]) => {
    const other = b.get(name)
    return other !== undefined && Buffer.compare(bytesOf(values), bytesOf(other)) === 0
  })
}

/** @param {Float32Array} values */
function bytesOf({ buffer, byteOffset, byteLength }) {
  return Buffer.from(buffer, byteOffset, byteLength)
}
