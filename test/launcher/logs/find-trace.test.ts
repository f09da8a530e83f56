import { findTrace } from '../../internals/launcher/logs.ts'

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
