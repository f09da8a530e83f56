import {
  formatBytes,
  formatRankList,
  formatRanks,
  formatSeconds,
  formatTable,
  textWidth,
} from '@tsrun/core'

it.each([
  [0, '0 B'],
  [1000, '1000 B'],
  [4096, '4 KiB'],
  [1536, '1.5 KiB'],
  [5.25 * 2 ** 20, '5.3 MiB'],
  [312.4 * 2 ** 20, '312 MiB'],
  [1.5 * 2 ** 30, '1.5 GiB'],
  [139 * 2 ** 30, '139 GiB'],
  [2 ** 52, '4096 TiB'],
])('%d bytes are formatted as %s', (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text)
})

it.each([
  [0.123, '0.12 s'],
  [12.34, '12.3 s'],
  [119.94, '119.9 s'],
  [250, '4 min 10 s'],
  [7500, '2 h 5 min'],
])('%d seconds are formatted as %s', (seconds, text) => {
  expect(formatSeconds(seconds)).toBe(text)
})

it('ranks are formatted as ranges', () => {
  expect(formatRankList([5, 0, 1, 2, 7, 8])).toBe('0-2, 5, 7-8')
  expect(formatRankList([])).toBe('')
  expect(formatRanks([3])).toBe('rank 3')
  expect(formatRanks([4, 3])).toBe('ranks 3-4')
})

it('a table has aligned columns', () => {
  const rows = [
    ['rank', 'time'],
    ['0', '12 s'],
    ['10', ''],
  ]
  expect(formatTable(rows)).toEqual(['rank  time', '0     12 s', '10'])
  expect(formatTable(rows, 'right')).toEqual(['rank  time', '   0  12 s', '  10'])
  expect(formatTable([])).toEqual([])
})

it('a table wider than a line is folded, and repeats its first column', () => {
  const rows = [
    ['rank', 'time', 'memory'],
    ['0', '12 s', '4 KiB'],
  ]
  expect(formatTable(rows, 'left', 18)).toEqual(['rank  time  memory', '0     12 s  4 KiB'])
  const folded = ['rank  time', '0     12 s', '', 'rank  memory', '0     4 KiB']
  expect(formatTable(rows, 'left', 17)).toEqual(folded)
  expect(formatTable(rows, 'left', 1)).toEqual(folded)
})

it('the line width is COLUMNS, then the width of the terminal, and otherwise 80', () => {
  expect(textWidth({ COLUMNS: '70' }, { columns: 120 })).toBe(70)
  expect(textWidth({}, { columns: 120 })).toBe(120)
  for (const COLUMNS of ['', '0', '-1', 'wide']) expect(textWidth({ COLUMNS }, {})).toBe(80)
  expect(textWidth({}, { columns: 0 })).toBe(80)
})
