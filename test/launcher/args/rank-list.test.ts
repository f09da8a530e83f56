import { formatRankList, parseRankList } from '../../../packages/launcher/src/args/rank-list.ts'

it.each([
  ['0', [0]],
  ['0,2-3', [0, 2, 3]],
  [' 1 , 1-2 ', [1, 2]],
])('reads %j', (text, ranks) => {
  expect([...(parseRankList(text) ?? [])]).toEqual(ranks)
})

it.each(['', 'a', '1-', '3-1', '1,,2', '-1', '0.5'])('refuses %j', (text) => {
  expect(parseRankList(text)).toBeUndefined()
})

it('writes ranks the short way', () => {
  expect(formatRankList([5, 0, 1, 2, 7, 8])).toBe('0-2, 5, 7-8')
  expect(formatRankList([])).toBe('')
})
