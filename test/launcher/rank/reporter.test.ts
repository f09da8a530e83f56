import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tsrError } from '@tsrun/core'
import { hideLibraryFrames, describeError } from '../../internals/launcher/report.ts'

const lost = tsrError('ERR_TSR_PEER_LOST', {
  ...{ peer: 3, rank: 1, reason: 'reset', operation: 'allReduce #4', group: 'world' },
})

it('the text of an error is what Node prints', () => {
  const { text, short, ...facts } = describeError(
    new TypeError('boom', { cause: new Error('root') }),
  )
  expect(facts).toEqual({ name: 'TypeError', message: 'boom', peers: [], distance: 0 })
  expect(text).toMatch(/^TypeError: boom\n +at /)
  expect(text).toContain('[cause]: Error: root')
  expect(short?.text).toContain('reporter.test.ts')
})

it('the text of an error omits a cause whose message is part of the message above it', () => {
  const cause = new Error('it is not set up')
  const facts = { backend: 'tensorflow', reason: 'it is not set up' }
  expect(describeError(tsrError('ERR_TSR_BACKEND', facts, { cause })).text).not.toContain('[cause]')
})

describe('the error of a program that only tsx runs', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-missing-'))
  beforeAll(() => {
    mkdirSync(join(folder, 'parts'))
    for (const name of ['lib.mts', 'one.ts', 'parts/index.ts'])
      writeFileSync(join(folder, name), '')
    writeFileSync(
      join(folder, 'tsconfig.json'),
      '{ "compilerOptions": { "paths": { "~/*": ["./*"], "@/*": ["./*"] } } }',
    )
  })
  afterAll(() => {
    rmSync(folder, { recursive: true })
  })
  const textOf = (message: string, code: string): string =>
    describeError(Object.assign(new Error(message), { code })).text
  const from = `imported from ${folder}/main.ts`

  it.each([
    ['lib.mjs', 'lib.mts'],
    ['one.js', 'one.ts'],
    ['one', 'one.ts'],
    ['parts', 'parts/index.ts'],
  ])('names the source of an import of %s', (name, source) => {
    const text = textOf(
      `Cannot find module '${join(folder, name)}' ${from}`,
      'ERR_MODULE_NOT_FOUND',
    )
    expect(text).toContain(`There is ${join(folder, source)}, which only tsx looks for`)
    expect(text).toContain('--import tsx')
  })

  it.each([
    [
      `Directory import '${folder}/parts' is not supported resolving ES modules ${from}`,
      'ERR_UNSUPPORTED_DIR_IMPORT',
      /There is .*parts\/index\.ts/,
    ],
    [`Cannot find package '~' ${from}`, 'ERR_MODULE_NOT_FOUND', /Only tsx heeds paths of .*json/],
    [`Cannot find package '@/one' ${from}`, 'ERR_MODULE_NOT_FOUND', /Only tsx heeds paths/],
    [
      "The requested module './a.ts' does not provide an export named 'Part'",
      '',
      /is a type: import type \{ Part \}/,
    ],
    [
      "The requested module './a.ts' does not provide an export named 'default'",
      '',
      /is a type: import type NAME from/,
    ],
    [
      `Unknown file extension ".tsx" for ${folder}/a.tsx`,
      'ERR_UNKNOWN_FILE_EXTENSION',
      /tsx runs TypeScript and JSX/,
    ],
  ])('explains: %s (%s)', (message, code, hint) => {
    expect(textOf(message, code)).toMatch(hint)
  })

  it('has no hint for a missing package that no path alias names', () => {
    const text = textOf(`Cannot find package '@scope/one' ${from}`, 'ERR_MODULE_NOT_FOUND')
    expect(text).not.toContain('tsx heeds')
  })

  const syntaxError = (line: string): string => {
    const error = new SyntaxError('Invalid or unexpected token')
    error.stack = `file://${folder}/a b/main.ts:2\n${line}\n^\n\n${String(error)}\n    at node:internal:1:2`
    return describeError(error).text
  }

  it.each([
    '@decorated',
    'export @decorated class A {}',
    'class A { @decorated x = 1 }',
    '  constructor(@Inject() x) {}',
  ])('explains a decorator: %s', (line) => {
    expect(syntaxError(line)).toContain('tsx runs decorators')
  })

  it.each(["import { a } from '@tsrun/core'", 'const a = // @ts-ignore', "send('mail @bob'"])(
    'has no hint for an @ that is no decorator: %s',
    (line) => {
      expect(syntaxError(line)).not.toContain('tsx')
    },
  )

  it.each(['--import tsx', '--import file:///dist/typescript-loader.js?tsx=a'])(
    'has no hint if a loader runs: NODE_OPTIONS="%s"',
    (options) => {
      const before = process.env['NODE_OPTIONS']
      process.env['NODE_OPTIONS'] = options
      try {
        expect(syntaxError('@decorated')).not.toContain('tsx runs')
      } finally {
        if (before === undefined) delete process.env['NODE_OPTIONS']
        else process.env['NODE_OPTIONS'] = before
      }
    },
  )

  it.each([
    [`Cannot find module '${folder}/none.js' ${from}`, 'ERR_MODULE_NOT_FOUND'],
    [`Cannot find package 'lodash' ${from}`, 'ERR_MODULE_NOT_FOUND'],
    [`Cannot find module '${folder}/lib' ${from}`, 'ERR_MODULE_NOT_FOUND'],
    [`Unknown file extension ".css" for ${folder}/a.css`, 'ERR_UNKNOWN_FILE_EXTENSION'],
    ["The requested module './a.js' does not provide an export named 'Part'", ''],
  ])('has no hint for: %s (%s)', (message, code) => {
    expect(textOf(message, code)).not.toContain('tsx')
  })
})

it('describes a timed-out operation with the ranks that it waited for', () => {
  const facts = {
    rank: 1,
    operation: 'barrier #4',
    group: 'world',
    milliseconds: 30,
    peers: '0, 3',
  }
  const error = tsrError('ERR_TSR_OPERATION_TIMEOUT', { ...facts, label: 'end of step' })
  expect(describeError(error).wait).toEqual({
    ...{ operation: 'barrier #4', group: 'world', milliseconds: 30, peers: [0, 3] },
    label: 'end of step',
  })
})

it('hides library frames, so that the first frame is in the code of the user', () => {
  const own = '    at train (/home/me/train.mjs:3:9)'
  const frames = [
    `    at load (${new URL('../../../packages/training/src/load.ts', import.meta.url).pathname}:60:5)`,
    '    at matMul (/home/me/node_modules/@tensorflow/tfjs-core/dist/tf.js:1:2)',
    '    at x (/home/me/node_modules/@tsrun/training/dist/index.js:1:2)',
    own,
    '    at Array.map (<anonymous>)',
    '    at node:internal/main:1:2',
  ]
  const text = ['Error: boom', ...frames].join('\n')
  expect(hideLibraryFrames(text)).toEqual({ text: `Error: boom\n${own}`, hidden: 5 })
  // Without a frame of the user, all of them say more than none.
  const foreign = `Error: boom\n${frames[1]!}`
  expect(hideLibraryFrames(foreign)).toEqual({ text: foreign, hidden: 0 })
})

it.each([
  [
    'SyntaxError: Unexpected token',
    '    at compileSourceTextModule (node:internal/modules/esm:1:2)',
  ],
  [
    "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'x' imported from /home/me/train.mjs",
    '    at packageResolve (node:internal/modules/esm/resolve:1:2)',
  ],
  [
    'Error: Transform failed with 1 error:\n/home/me/train.ts:3:5: ERROR: Expected ";"',
    '    at failureErrorWithLog (/home/me/node_modules/esbuild/lib/main.js:1:2)',
  ],
])('hides all frames if the message names the place: %s', (message, frame) => {
  expect(hideLibraryFrames(`${message}\n${frame}`)).toEqual({ text: message, hidden: 1 })
})

it('keeps the bracket before the properties of an error whose last frame is hidden', () => {
  const text = "Error: no x imported from y\n    at a (node:internal:1:2) {\n  code: 'NONE'\n}"
  const short = "Error: no x imported from y {\n  code: 'NONE'\n}"
  expect(hideLibraryFrames(text)).toEqual({ text: short, hidden: 1 })
})

it('describes an error of esbuild without its properties, which repeat the message', () => {
  const message = 'Transform failed with 1 error:\n/home/me/train.ts:1:18: ERROR: Unexpected ";"'
  const error = Object.assign(new Error(message), { errors: [{ id: '' }], warnings: [] })
  expect(describeError(error).text).toBe(error.stack)
})

it.each([null, 'text only', { code: 7 }])('says that %j has no stack', (thrown) => {
  expect(describeError(thrown).text).toContain('is no Error, so it has no stack')
})

it('describes a rejection whose reason is no Error in one sentence', () => {
  const error = Object.assign(
    new Error(
      'This error originated either by throwing inside of an async function without a catch block, or ' +
        'by rejecting a promise which was not handled with .catch(). The promise rejected with the ' +
        'reason "just text".',
    ),
    { code: 'ERR_UNHANDLED_REJECTION' },
  )
  const text = 'a promise was rejected with just text, which is no Error and has no stack'
  expect(describeError(error)).toMatchObject({ message: text, text: `Error: ${text}` })
})

it('the text of a TsrError omits its facts, which its message contains', () => {
  expect(describeError(lost).text).toBe(lost.stack)
  const { text } = describeError(
    tsrError('ERR_TSR_TIMEOUT', { what: 'it', milliseconds: 1 }, { cause: new Error('root') }),
  )
  expect(text).toMatch(/^TsrError: it did not finish [^]*\n\[cause\]: Error: root\n/)
})

it('finds among the causes of an error the failure of another rank, and names that rank', () => {
  expect(describeError(lost)).toMatchObject({
    code: 'ERR_TSR_PEER_LOST',
    peers: [3],
    distance: 3,
  })
  const wrapped = new Error('the step failed', { cause: new Error('inner', { cause: lost }) })
  expect(describeError(wrapped)).toMatchObject({
    message: 'the step failed',
    code: 'ERR_TSR_PEER_LOST',
    distance: 3,
  })
})

it('recognizes that another rank caused an error, even if the error is a copy from another thread', () => {
  expect(describeError({ ...lost.toJSON() })).toMatchObject({ peers: [3], distance: 3 })
})

it.each([
  ['text', 'string', 'text'],
  [undefined, 'undefined', 'undefined'],
  [null, 'object', 'null'],
  [42, 'number', '42'],
])('describes %j, which is not an error', (thrown, name, message) => {
  expect(describeError(thrown)).toMatchObject({ name, message, distance: 0 })
})

it('describes an error whose properties throw', () => {
  const trap = new Proxy(
    {},
    {
      get: () => {
        throw new Error('no')
      },
    },
  )
  expect(describeError(trap)).toMatchObject({ name: 'unknown' })
  const circle = new Error('circle')
  circle.cause = circle
  expect(describeError(circle)).toMatchObject({ message: 'circle' })
})
