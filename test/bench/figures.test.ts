import {
  markdownTable,
  median,
  parseSize,
  percentile,
  significant,
} from '../../scripts/bench/figures.mjs'

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

describe('percentile', () => {
  it('is the smallest sample that reaches the share', () => {
    const samples = Array.from({ length: 100 }, (_, i) => 100 - i)
    expect(percentile(samples, 0.5)).toBe(50)
    expect(percentile(samples, 0.99)).toBe(99)
    expect(percentile(samples, 0)).toBe(1)
    expect(percentile(samples, 1)).toBe(100)
  })

  it('is the largest of few samples at 0.99', () => {
    expect(percentile([3, 1, 2], 0.99)).toBe(3)
  })

  it('does not change its input, and refuses an empty input', () => {
    const samples = [10, 9, 100]
    percentile(samples, 0.5)
    expect(samples).toEqual([10, 9, 100])
    expect(() => percentile([], 0.5)).toThrow(RangeError)
  })
})

describe('median', () => {
  it('is the middle sample, or the mean of the middle two', () => {
    expect(median([9, 10, 1])).toBe(9)
    expect(median([4, 1, 3, 2])).toBe(2.5)
    expect(median([7])).toBe(7)
    expect(() => median([])).toThrow(RangeError)
  })
})

describe('significant', () => {
  it('rounds to four digits', () => {
    expect(significant(123456)).toBe(123500)
    expect(significant(0.000123456)).toBe(0.0001235)
    expect(significant(0.4567, 2)).toBe(0.46)
  })
})

describe('markdownTable', () => {
  it('aligns words to the left and numbers to the right', () => {
    const rows = [
      ['allReduce', 17.5],
      ['barrier', 250],
    ]
    expect(markdownTable(['operation', 'us'], rows)).toBe(
      [
        '| operation |   us |',
        '| --------- | ---: |',
        '| allReduce | 17.5 |',
        '| barrier   |  250 |',
      ].join('\n'),
    )
  })

  it('prints the headings of an empty table', () => {
    expect(markdownTable(['a'], [])).toBe('| a   |\n| --- |')
  })
})
