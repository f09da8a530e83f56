import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { operationCodes } from '../internals/distributed/algorithms.ts'
import { problemsOf } from '../../scripts/architecture/check-walk.mjs'
import { placesOf } from '../../scripts/architecture/declarations.mjs'
import {
  exportsOf,
  hasProgramInString,
  implementationsOf,
  interfacesWith,
  parse,
  tokensOf,
} from '../../scripts/architecture/syntax.mjs'
import { walks } from '../../scripts/architecture/walks.mjs'

const root = fileURLToPath(new URL('../../', import.meta.url))

it('the walks pass through 24 files (gradient), 23 (activation) and 19 (batch)', () => {
  expect(walks.map(({ name, bound }) => [name, bound])).toEqual([
    ['gradient', 24],
    ['activation', 23],
    ['batch', 19],
  ])
})

describe('a collective', () => {
  const folder = 'packages/distributed/src'
  const files = readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => join(folder, name))
  const collectives = Object.keys(operationCodes).filter((name) => !/send|recv/i.test(name))

  it.each(collectives)('%s is declared in three places', (name) => {
    expect(placesOf(root, files, name)).toHaveLength(3)
  })
})

describe('the check of a walk', () => {
  let folder: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tsrun-walk-'))
    const write = (name: string, text: string) => {
      writeFileSync(join(folder, name), text)
    }
    write('caller.ts', 'export function start(runner: Runner) { prepare(); runner.run() }')
    write('helper.ts', 'export function prepare() {}')
    write('runner.ts', 'export interface Runner { run(): void }')
    write(
      'thread.ts',
      'export class Thread implements Runner { run() { this.#post() } #post() {} }',
    )
  })
  afterEach(() => {
    rmSync(folder, { recursive: true })
  })

  const imports = [
    { from: 'caller.ts', to: 'helper.ts', typeOnly: false },
    { from: 'caller.ts', to: 'runner.ts', typeOnly: true },
    { from: 'thread.ts', to: 'runner.ts', typeOnly: true },
  ]
  const contract = { file: 'runner.ts', name: 'Runner' }
  const caller = { file: 'caller.ts', functions: ['start'], does: '' }
  const helper = { file: 'helper.ts', functions: ['prepare'], does: '' }
  const thread = {
    ...{ file: 'thread.ts', functions: ['Thread.run', 'Thread.#post'], does: '' },
    ...{ calledBy: 'caller.ts', contract },
  }
  const check = (steps: (typeof caller)[], bound = 3) =>
    problemsOf(folder, { name: 'test', title: '', bound, goal: bound, steps }, imports)

  it('accepts steps that lead to each other, directly or through a contract', () => {
    expect(check([caller, helper, thread])).toEqual([])
  })

  it('refuses steps that the sources do not contain', () => {
    expect(check([caller, { ...helper, file: 'gone.ts' }])).toEqual([
      'gone.ts does not declare prepare',
      'caller.ts does not import gone.ts',
    ])
    expect(check([caller, { ...helper, functions: ['other'] }])).toEqual([
      'helper.ts does not declare other',
      'caller.ts does not use other',
    ])
    expect(check([helper, caller])).toEqual([
      'helper.ts does not import caller.ts',
      'helper.ts does not use start',
    ])
    expect(check([helper, thread])).toEqual([
      'caller.ts, which calls thread.ts, is not an earlier step',
    ])
    const other = { ...thread, contract: { file: 'helper.ts', name: 'Runner' } }
    expect(check([caller, other])).toEqual([
      'helper.ts does not declare Runner',
      'thread.ts does not import helper.ts',
    ])
  })

  it('refuses a walk through too many files', () => {
    expect(check([caller, helper, thread], 2)).toEqual(['it passes 3 files; at most 2 are allowed'])
  })
})

describe('the report on the architecture', () => {
  let folder: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tsrun-figures-'))
  })
  afterEach(() => {
    rmSync(folder, { recursive: true })
  })
  const write = (name: string, text: string) => {
    const path = join(folder, name)
    writeFileSync(path, text)
    return path
  }

  it('counts tokens independently of comments and format', () => {
    const short = parse(write('short.ts', 'const a = `x${1}y`; f(a)'))
    const long = parse(write('long.ts', '/** Says a. */\nconst a =\n  `x${1}y`; // why\nf(a)\n'))
    expect([short, long].map(tokensOf)).toEqual([11, 11])
  })

  it('lists the names that an entry point exports, and marks types', () => {
    write('values.ts', 'export const { a, b } = c\nexport interface D {}\nexport function e() {}')
    const entry = `export * from './values.ts'\nexport { f, type G } from './f.ts'\nexport * as h from './h.ts'`
    const names = exportsOf(write('index.ts', entry))
    const of = (isType: boolean) => names.filter((each) => each.isType === isType)
    expect(of(false).map(({ name }) => name)).toEqual(['a', 'b', 'e', 'f', 'h'])
    expect(of(true).map(({ name }) => name)).toEqual(['D', 'G'])
  })

  it.each([
    ['a template', 'const p = `\nconst fs = require("fs")\nfs.rmSync(${path})\n`', true],
    ['an argument of --eval', `run('--eval', 'process.exit(3)')`, true],
    ['a sentence', `throw new Error('the file calls process.exit(3), or require() fails')`, false],
    ['code', `require('fs').rmSync(path); process.exit(3)`, false],
  ])('recognizes whether a string contains a program: %s', (_, text, isProgram) => {
    expect(hasProgramInString(parse(write('file.ts', text)))).toBe(isProgram)
  })

  it('counts classes that implement a contract, but not their subclasses', () => {
    const source = parse(
      write(
        'work.ts',
        [
          'interface Work { then(): void; originalName: string }',
          'interface FollowedWork extends Work {}',
          'abstract class Pending implements FollowedWork {}',
          'class Sent extends Pending {}',
          'class Other implements Work {}',
          'class Ticket {}',
        ].join('\n'),
      ),
    )
    expect(implementationsOf([source], 'Work')).toEqual(['Pending', 'Other'])
    expect(implementationsOf([source], 'Ticket')).toEqual(['Ticket'])
    expect(interfacesWith([source], 'originalName')).toEqual(['Work'])
  })
})
