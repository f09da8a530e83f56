import { ProgressCollapser } from '../../../packages/launcher/src/logs/lines.ts'

it('shows a bar now and then, and its last state', () => {
  let now = 0
  const collapser = new ProgressCollapser(() => now)
  const bar = (percent: number): string | undefined =>
    collapser.push({ text: `${percent} %`, end: '\r' })
  expect(bar(0)).toBe('0 %')
  now = 999
  expect(bar(10)).toBeUndefined()
  now = 1000
  expect(bar(20)).toBe('20 %')
  expect(bar(100)).toBeUndefined()
  expect(collapser.push({ text: '', end: '\n' })).toBe('100 %')
  expect(collapser.push({ text: '', end: '\n' })).toBe('')
})

it('writes over a bar what follows it, as a terminal does', () => {
  const collapser = new ProgressCollapser(() => 0)
  collapser.push({ text: '40 %', end: '\r' })
  expect(collapser.push({ text: '50 %', end: '\r' })).toBeUndefined()
  expect(collapser.push({ text: 'done', end: '\n' })).toBe('done')
})

it('keeps the state of a bar that never ends', () => {
  const collapser = new ProgressCollapser(() => 0)
  expect(collapser.flush()).toBeUndefined()
  collapser.push({ text: '50 %', end: '\r' })
  collapser.push({ text: '', end: '\r' })
  expect(collapser.flush()).toBe('50 %')
})
