import { parsePortRange } from '@tsrun/core'

it.each([
  ['29600-29699', { first: 29_600, last: 29_699 }],
  [' 29600 ', { first: 29_600, last: 29_600 }],
  ['1-65535', { first: 1, last: 65_535 }],
  ['0-5', undefined],
  ['5-4', undefined],
  ['1-65536', undefined],
  ['', undefined],
  ['a-b', undefined],
  ['-5', undefined],
])('reads %j', (text, range) => {
  expect(parsePortRange(text)).toEqual(range)
})
