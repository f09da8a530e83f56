import { written, type Schema } from '@tsrun/core'

const decimal: Readonly<Record<string, number>> = {
  '': 1,
  K: 1e3,
  M: 1e6,
  G: 1e9,
  B: 1e9,
  T: 1e12,
  P: 1e15,
}

const expected = {
  bytes: 'a size, as in 24GB or 24GiB',
  'bytes/s': 'bytes in a second, as in 10GB/s or 100Gbit/s',
  '': 'a number from 1, as in 10B, 7.5M or 1e12',
}

/**
 * Reads numbers with units: `10B` parameters, `24GB` or `24GiB` of memory, `10GB/s` or `100Gbit/s` of a
 * link, `12T` operations.
 *
 * @param what - the unit of the value; without one, `B` means 10^9
 */
export function quantity(what?: 'bytes' | 'bytes/s'): Schema<number> {
  return written(expected[what ?? ''], (text) => {
    const [, digits, prefix = '', rest = ''] =
      /^(\d+(?:\.\d+)?(?:e\d+)?)\s*([KMGTP]?)(.*)$/i.exec(text) ?? []
    const factor = decimal[prefix.toUpperCase()]!
    const unit = what === 'bytes/s' ? rest.replace(/\/s$|ps$/, '') : rest
    const value = Number(digits) * unitFactor(prefix, unit, what) * factor
    return value > 0 && value < Infinity ? value : undefined
  })
}

/** The factor of a unit, apart from the prefix's power of ten; NaN for an unknown unit. */
function unitFactor(prefix: string, unit: string, what: 'bytes' | 'bytes/s' | undefined): number {
  if (unit === '') return 1
  if (what === undefined) return unit === 'B' && prefix === '' ? 1e9 : NaN
  if (unit === 'B') return 1
  if (/^iB$/i.test(unit)) {
    const power = ['', 'K', 'M', 'G', 'T', 'P'].indexOf(prefix.toUpperCase())
    return power < 1 ? NaN : (1024 / 1000) ** power
  }
  return what === 'bytes/s' && /^bit$/i.test(unit) ? 1 / 8 : NaN
}
