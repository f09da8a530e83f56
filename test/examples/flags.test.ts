import { describe, expect, it } from '@jest/globals'
import { choice, count, integer, positive } from '../../examples/lib/flags.ts'

describe('flags of the examples', () => {
  it.each([
    ['count', count(8), { '1': 1, '60000': 60_000 }, ['0', '-1', '1.5', 'many', '', '1e3']],
    ['integer', integer(0), { '0': 0, '7': 7 }, ['-1', '1.5', 'many', '']],
    [
      'positive',
      positive(1),
      { '0.003': 0.003, '1e-3': 0.001 },
      ['0', '-1', 'NaN', 'Infinity', ''],
    ],
    ['choice', choice(['naive', 'gpipe'], 'naive'), { gpipe: 'gpipe' }, ['zigzag', '', 'GPIPE']],
  ] as const)('%s takes what it names, and nothing else', (_, flag, good, bad) => {
    for (const [text, value] of Object.entries(good)) expect(flag.read(text)).toBe(value)
    for (const text of bad) expect(flag.read(text)).toBeUndefined()
  })
})
