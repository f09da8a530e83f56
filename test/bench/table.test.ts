import { markdownTable } from '../../scripts/bench/figures.mjs'

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
