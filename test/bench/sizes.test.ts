import { parseSize } from '../../scripts/bench/figures.mjs'

describe('parseSize', () => {
  it.each([
    ['4KiB', 4096],
    ['1MiB', 1048576],
    ['64 mib', 67108864],
    ['1.5KiB', 1536],
    ['1MB', 1000000],
    ['12', 12],
    ['8B', 8],
  ])('reads %s', (text, bytes) => {
    expect(parseSize(text)).toBe(bytes)
  })

  it.each(['', 'KiB', '4 parsecs', '-1KiB', '0', '0.3B', '1e3', 'NaN', '99999999999GiB'])(
    'refuses "%s" with an example',
    (text) => {
      expect(() => parseSize(text)).toThrow(/is not a size; write 4KiB/)
    },
  )
})
