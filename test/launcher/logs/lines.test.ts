import { collapseProgress, lineSplitter, type Line } from '../../internals/launcher/logs.ts'

const bytes = (text: string): Buffer => Buffer.from(text)
const line = (text: string, end: Line['end'] = '\n'): Line => ({ text, end })

it('a splitter holds back a partial line until it ends', () => {
  const splitter = lineSplitter()
  expect(splitter.push(bytes('one\ntw'))).toEqual([line('one')])
  expect(splitter.push(bytes('o\r\n\nthree'))).toEqual([line('two'), line('')])
  expect(splitter.flush()).toEqual([line('three')])
  expect(splitter.flush()).toEqual([])
})

it('a splitter joins a character that arrives in two chunks', () => {
  const splitter = lineSplitter()
  const euro = bytes('€')
  expect(splitter.push(euro.subarray(0, 1))).toEqual([])
  expect(splitter.push(Buffer.concat([euro.subarray(1), bytes('\n')]))).toEqual([line('€')])
})

it('a splitter distinguishes progress bars from lines', () => {
  const splitter = lineSplitter()
  expect(splitter.push(bytes('10 %\r20 %\r'))).toEqual([line('10 %', '\r'), line('20 %', '\r')])
  expect(splitter.push(bytes('\ndone\n'))).toEqual([line(''), line('done')])
})

it('a splitter cuts a line at the limit and loses nothing', () => {
  const splitter = lineSplitter(4)
  expect(splitter.push(bytes('abcdefghij'))).toEqual([line('abcd', ''), line('efgh', '')])
  expect(splitter.push(bytes('k\nlm'))).toEqual([line('ijk')])
  expect(splitter.flush()).toEqual([line('lm')])
})

it('a splitter returns the same text, however it is cut into chunks', () => {
  const text = 'a\nbb\r\nccc\rdd\n\n€€\rlast'
  const all = bytes(text)
  for (let size = 1; size <= all.length; size++) {
    const splitter = lineSplitter()
    const lines: Line[] = []
    for (let at = 0; at < all.length; at += size)
      lines.push(...splitter.push(all.subarray(at, at + size)))
    lines.push(...splitter.flush())
    const joined = lines.map((piece) => piece.text + piece.end).join('')
    expect(joined.replaceAll('\r\n', '\n')).toBe(text.replaceAll('\r\n', '\n') + '\n')
  }
})

describe('a progress bar', () => {
  it('is shown at intervals and in its last state', () => {
    let now = 0
    const collapser = collapseProgress(() => now)
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

  it('is overwritten by the next line, as on a terminal', () => {
    const collapser = collapseProgress(() => 0)
    collapser.push({ text: '40 %', end: '\r' })
    expect(collapser.push({ text: '50 %', end: '\r' })).toBeUndefined()
    expect(collapser.push({ text: 'done', end: '\n' })).toBe('done')
  })

  it('shows its last state if it never ends', () => {
    const collapser = collapseProgress(() => 0)
    expect(collapser.flush()).toBeUndefined()
    collapser.push({ text: '50 %', end: '\r' })
    collapser.push({ text: '', end: '\r' })
    expect(collapser.flush()).toBe('50 %')
  })
})
