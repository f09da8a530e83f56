/*
 * Changes inputs. Everything comes of a seed, so that a find can be made again by its number.
 */

/** A source of numbers from 0 to below 1. */
export type Random = () => number

function pick<T>(random: Random, list: readonly T[]): T {
  return list[Math.floor(random() * list.length)]!
}

/** Values that code which expects another one trips over. */
const odd: readonly unknown[] = [
  ...[null, true, false, 0, -1, 1, 0.5, 2 ** 31, 2 ** 32, 2 ** 53, -(2 ** 53), 1e9, 1e308],
  ...['', ' ', '0', '-1', 'x'.repeat(5000), '\u0000', '\u001b[2J', '../../etc/passwd', '/', '.'],
  ...['__proto__', 'constructor', 'toString', 'ERR_TSR_ARGUMENT', 'é✓🗝', '\ud800'],
  ...[[], [null], [[]], {}, { length: 3 }, { toString: 1 }, [1, 2, 3], { a: { b: {} } }],
]

const oddNames = odd.filter((value) => typeof value === 'string')

/** A copy of a JSON value in which something is different. */
export function mutateValue(random: Random, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || random() < 0.1) return pick(random, odd)
  if (Array.isArray(value)) {
    const copy: unknown[] = value.slice()
    const at = Math.floor(random() * (copy.length + 1))
    const choice = random()
    if (choice < 0.2) copy.splice(at, 1)
    else if (choice < 0.4) copy.splice(at, 0, pick(random, [...odd, ...copy]))
    else if (choice < 0.45) return Array.from({ length: 300 }, () => copy[at] ?? null)
    else if (copy.length > 0) {
      const index = Math.min(at, copy.length - 1)
      copy[index] = mutateValue(random, copy[index])
    }
    return copy
  }
  const entries: [string, unknown][] = Object.entries(value)
  if (entries.length === 0) return { [pick(random, oddNames)]: pick(random, odd) }
  const at = Math.floor(random() * entries.length)
  const [name, own] = entries[at]!
  const choice = random()
  if (choice < 0.15) entries.splice(at, 1)
  else if (choice < 0.2) entries.push([pick(random, oddNames), own])
  else if (choice < 0.25) entries[at] = [pick(random, oddNames), own]
  else entries[at] = [name, mutateValue(random, own)]
  // also a field of the name __proto__, as JSON.parse makes it
  const result: Record<string, unknown> = {}
  for (const [key, field] of entries) {
    Object.defineProperty(result, key, { value: field, enumerable: true, configurable: true })
  }
  return result
}

/** A copy of some bytes in which something is different. */
export function mutateBytes(
  random: Random,
  input: Uint8Array,
  others: readonly Uint8Array[],
): Uint8Array {
  let bytes: Uint8Array = Uint8Array.from(input)
  for (let changes = 1 + Math.floor(random() * 4); changes > 0; changes--) {
    const at = Math.floor(random() * (bytes.length + 1))
    const choice = random()
    if (choice < 0.3 && bytes.length > 0) bytes[at % bytes.length]! ^= 1 << Math.floor(random() * 8)
    else if (choice < 0.5 && bytes.length > 0) bytes[at % bytes.length] = random() * 256
    else if (choice < 0.6) bytes = bytes.subarray(0, at)
    else if (choice < 0.7) bytes = join(bytes.subarray(0, at), bytes.subarray(at + random() * 8))
    else if (choice < 0.8) {
      const number = new DataView(new ArrayBuffer(4))
      number.setUint32(0, pick(random, [0, 1, 0x7f, 0xff, 0x7fffffff, 0xffffffff]), random() < 0.5)
      bytes = join(bytes.subarray(0, at), new Uint8Array(number.buffer), bytes.subarray(at + 4))
    } else if (choice < 0.9) {
      const other = pick(random, others)
      bytes = join(bytes.subarray(0, at), other.subarray(random() * other.length))
    } else {
      const length = Math.floor(random() * 16)
      const noise = Uint8Array.from({ length }, () => random() * 256)
      bytes = join(bytes.subarray(0, at), noise, bytes.subarray(at))
    }
  }
  return bytes
}

function join(...parts: readonly Uint8Array[]): Uint8Array {
  return Uint8Array.from(Buffer.concat(parts))
}
