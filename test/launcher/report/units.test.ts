import { formatBytes, formatSeconds } from '../../../packages/launcher/src/report/units.ts'

it.each([
  [0, '0.0 MiB'],
  [5.25 * 2 ** 20, '5.3 MiB'],
  [312 * 2 ** 20, '312 MiB'],
  [1.5 * 2 ** 30, '1.5 GiB'],
  [139 * 2 ** 30, '139 GiB'],
])('%d bytes are %s', (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text)
})

it.each([
  [0.123, '0.12 s'],
  [12.34, '12.3 s'],
  [119.94, '119.9 s'],
  [250, '4 min 10 s'],
  [7500, '2 h 5 min'],
])('%d seconds are %s', (seconds, text) => {
  expect(formatSeconds(seconds)).toBe(text)
})
