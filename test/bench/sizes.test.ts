import { formatSize, parseSize } from '../../scripts/bench/figures.mjs'

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

describe('formatSize', () => {
  it('is exact and short', () => {
    expect(formatSize(4096)).toBe('4 KiB')
    expect(formatSize(67108864)).toBe('64 MiB')
    expect(formatSize(1536)).toBe('1.5 KiB')
    expect(formatSize(1000)).toBe('1000 B')
    expect(formatSize(4092)).toBe('4092 B')
  })
})
