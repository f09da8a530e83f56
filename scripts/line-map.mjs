const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
const valueOf = new Map([...DIGITS].map((digit, value) => [digit, value]))

/**
 * Reduces a source map to one position for each line. Node reads the maps of all modules that a
 * process loads when it loads them; with lines alone they are a tenth as long, and stack traces
 * still name the source file and its line.
 *
 * @param {string} text - of a source map, version 3
 */
export function toLineMap(text) {
  const { names: _, mappings, ...map } = JSON.parse(text)
  /** Source, line and column: those of the segment before, and those of the one last kept. */
  const current = [0, 0, 0]
  const kept = [0, 0, 0]
  const lines = mappings.split(';').map((/** @type {string} */ line) => {
    let first
    for (const segment of line === '' ? [] : line.split(',')) {
      const [, ...fields] = decode(segment)
      if (fields.length === 0) continue
      for (const at of current.keys()) current[at] += fields[at]
      first ??= [...current]
    }
    if (first === undefined) return ''
    const deltas = first.map((value, at) => value - kept[at])
    kept.splice(0, 3, ...first)
    return [0, ...deltas].map(encode).join('')
  })
  return JSON.stringify({ ...map, names: [], mappings: lines.join(';') })
}

/**
 * The numbers of a segment (base 64 VLQ: five bits a digit, lowest first, the sign in the lowest).
 *
 * @param {string} segment
 */
function decode(segment) {
  const numbers = []
  let shift = 0
  let value = 0
  for (const digit of segment) {
    const bits = valueOf.get(digit)
    value |= (bits & 31) << shift
    shift += 5
    if (bits & 32) continue
    numbers.push(value & 1 ? -(value >> 1) : value >> 1)
    shift = value = 0
  }
  return numbers
}

/** @param {number} number */
function encode(number) {
  let rest = number < 0 ? (-number << 1) | 1 : number << 1
  let digits = ''
  do {
    const bits = rest & 31
    rest >>= 5
    digits += DIGITS[rest > 0 ? bits | 32 : bits]
  } while (rest > 0)
  return digits
}
