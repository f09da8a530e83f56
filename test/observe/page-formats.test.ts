import { durationText, millisecondsText, numberText, percentText } from '../internals/observe.ts'

it('the page shows no number for null, which stands for NaN and infinities in JSON', () => {
  const { loss } = JSON.parse(JSON.stringify({ loss: Infinity })) as { loss: number }
  expect([loss, NaN, Infinity, undefined].map((value) => numberText(value))).toEqual(
    Array(4).fill('–'),
  )
  expect(numberText(0.123456)).toBe('0.123')
})

it('the page formats times and shares', () => {
  expect([undefined, 0.5, 123.4, 2500].map((time) => millisecondsText(time))).toEqual([
    '–',
    '0.50 ms',
    '123 ms',
    '2.50 s',
  ])
  expect(percentText(0.256)).toBe('26 %')
  expect([7.9, 250, 3600 * 30].map(durationText)).toEqual(['7 s', '4 min 10 s', '30 h 0 min'])
})
