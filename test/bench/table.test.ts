import { formatTable } from '../../scripts/bench/figures.mjs'

it('aligns words to the left and numbers to the right', () => {
  const rows = [
    ['allReduce', 17.5],
    ['barrier', 250],
  ]
  expect(formatTable(['operation', 'us'], rows)).toBe(
    [
      '| operation |   us |',
      '| --------- | ---: |',
      '| allReduce | 17.5 |',
      '| barrier   |  250 |',
    ].join('\n'),
  )
})

it('prints the headings of an empty table', () => {
  expect(formatTable(['a'], [])).toBe('| a   |\n| --- |')
})
