import { millisecondsText, numberText, percentText } from '../internals/observe.ts'

it('shows no number where there is none: NaN and the infinities are null in JSON', () => {
  const { loss } = JSON.parse(JSON.stringify({ loss: Infinity })) as { loss: number }
  expect([loss, NaN, Infinity, undefined].map((value) => numberText(value))).toEqual(
    Array(4).fill('–'),
  )
  expect(numberText(0.123456)).toBe('0.123')
})

it('shows times and shares', () => {
  expect([undefined, 0.5, 123.4, 2500].map((time) => millisecondsText(time))).toEqual([
    '–',
    '0.50 ms',
    '123 ms',
    '2.50 s',
  ])
  expect(percentText(0.256)).toBe('26 %')
})
