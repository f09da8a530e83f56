import {
  findTrace,
  mergeTraces,
  type Line,
  type TraceMerger,
} from '../../internals/launcher/logs.ts'

const trace = ['TypeError: x is not a function', '    at f (/a.mjs:1:2)', '    at g (/a.mjs:3:4)']
const node = [
  'file:///a.mjs:1',
  'const x = ;',
  '          ^',
  '',
  'SyntaxError: Unexpected token',
  '    at compile (node:internal:1:2)',
  '',
  'Node.js v22.1.0',
]
const python = [
  'Traceback (most recent call last):',
  '  File "a.py", line 1, in <module>',
  '    1 / 0',
  'ZeroDivisionError: division by zero',
]

describe('findTrace', () => {
  it.each([
    ['an error with its stack', trace],
    ['what Node prints about a syntax error', node],
    ['a traceback of Python', python],
    [
      'the properties and the cause of an error',
      [
        'Error: a',
        '    at f (/a.mjs:1:2) {',
        "  code: 'E',",
        '  [cause]: Error: b',
        '      at g (/a.mjs:3:4)',
        '}',
      ],
    ],
  ])('finds %s between other lines', (_, lines) => {
    expect(findTrace(['epoch 1', ...lines, 'epoch 2'])).toEqual({ from: 1, to: 1 + lines.length })
  })

  it('finds nothing in other lines', () => {
    expect(findTrace(['step 1: loss 0.3', '  at the moment it is fine', ''])).toBeUndefined()
    expect(findTrace(['Error: without a stack', 'step 2'])).toBeUndefined()
  })
})

describe('a TraceMerger', () => {
  let now = 0
  let shown = ''
  let merger: TraceMerger
  beforeEach(() => {
    now = 0
    shown = ''
    merger = mergeTraces({ colour: false, write: (text) => (shown += text), clock: () => now })
  })
  const take = (rank: number, texts: readonly string[]): void => {
    const lines = texts.map((text): Line => ({ text, end: '\n' }))
    merger.take(rank, lines, ({ text }) => `[rank ${rank}] ${text}\n`)
  }

  it('shows a trace of several ranks once, and keeps the line order of each rank', () => {
    for (const rank of [7, 0, 1]) take(rank, ['before', ...trace, 'after'])
    take(0, ['later'])
    take(2, ['of another rank'])
    expect(shown).toBe(
      '[rank 7] before\n[rank 0] before\n[rank 1] before\n[rank 2] of another rank\n',
    )
    shown = ''
    now = 300
    merger.flush(200)
    const prefix = '[ranks 0-1, 7] '
    expect(shown).toBe(
      trace.map((line) => `${prefix}${line}\n`).join('') +
        '[rank 7] after\n[rank 0] after\n[rank 0] later\n[rank 1] after\n',
    )
  })

  it('does not change lines that only one rank prints', () => {
    take(3, trace)
    take(4, ['Error: another one', ...trace.slice(1)])
    merger.flush(200)
    expect(shown).toBe('')
    merger.flush()
    expect(shown).toBe(
      [
        ...trace.map((line) => `[rank 3] ${line}\n`),
        '[rank 4] Error: another one\n',
        ...trace.slice(1).map((line) => `[rank 4] ${line}\n`),
      ].join(''),
    )
  })

  it('merges different traces of several ranks, but not repeated traces of one rank', () => {
    for (const rank of [0, 1]) take(rank, [...trace, 'between', ...python])
    merger.flush()
    expect(shown).toContain(`[ranks 0-1] ${python[0]!}\n`)
    expect(shown.match(/^\[rank \d\] .*$/gm)).toEqual(['[rank 0] between', '[rank 1] between'])
    shown = ''
    take(3, trace)
    for (let i = 0; i < 100; i++) take(3, trace)
    now += 300
    merger.flush(200)
    expect(shown).toBe(
      trace
        .map((line) => `[rank 3] ${line}\n`)
        .join('')
        .repeat(101),
    )
  })

  it('limits how much output it holds back', () => {
    take(3, trace)
    take(3, Array<string>(1001).fill('more'))
    expect(shown).toContain(`[rank 3] ${trace[0]!}\n`)
    expect(shown).toMatch(/more\n$/)
  })
})
