import { templateProblem, type RankFacts, type LogFormat } from '../../internals/launcher/args.ts'
import { makePresenter, rankPrefix, type Presenter } from '../../internals/launcher/logs.ts'

const noon = Date.parse('2026-11-24T12:00:00.500Z')
const facts: RankFacts = {
  ...{ rank: 3, localRank: 1, worldSize: 4, role: 'trainer', host: 'h1', node: 1, pid: 4711 },
  ...{ generation: 2, startedAt: noon - 1250 },
}

const make = (format: LogFormat, worldSize: number, prefix?: string, colour = false): Presenter => {
  const how = { format, prefix, colour: { stdout: colour, stderr: colour }, clock: () => noon }
  return makePresenter(how, { ...facts, worldSize }, 'stderr')
}

it('prefixes are padded to the widest rank', () => {
  expect(rankPrefix(3, 4, false)).toBe('[rank 3] ')
  expect(rankPrefix(3, 101, false)).toBe('[rank 3]   ')
  expect(rankPrefix(100, 101, false)).toBe('[rank 100] ')
})

it('a rank has the same colour for any number of ranks', () => {
  expect(rankPrefix(3, 4, true)).toBe('\x1b[35m[rank 3]\x1b[39m ')
  expect(rankPrefix(3, 11, true)).toBe('\x1b[35m[rank 3]\x1b[39m  ')
})

it('every line has a prefix, including the lines of a stack in a log record', () => {
  const record = {
    level: 50,
    time: 1,
    name: 'engine',
    runId: 'r',
    msg: 'lost',
    err: { stack: 'Error: x\n    at y' },
  }
  expect(make('pretty', 4).present({ text: JSON.stringify(record), end: '\n' })).toBe(
    '[rank 3] ERROR engine: lost\n[rank 3] Error: x\n[rank 3]     at y\n',
  )
})

it.each([
  '{"level":30,"time":1,"pid":1,"hostname":"h","msg":"mine"}',
  '{"level":"info","name":"train","runId":"r1","msg":"mine"}',
])('does not reformat the JSON of other loggers: %s', (text) => {
  expect(make('pretty', 4).present({ text, end: '\n' })).toBe(`[rank 3] ${text}\n`)
  expect(make('raw', 4).present({ text, end: '\n' })).toBe(`${text}\n`)
})

it('does not change the output of a single rank', () => {
  expect(make('pretty', 1).present({ text: '10 %', end: '\r' })).toBe('10 %\r')
})

it.each(['\x1b[K', '\x1b[2K', '\x1b[1G'])(
  'progress bars of a single rank erase their line and move the cursor in it, by %j',
  (code) => {
    const line = { text: `${code}10 %`, end: '\r' } as const
    expect(make('pretty', 1, undefined, true).present(line)).toBe(`${code}10 %\r`)
    expect(make('pretty', 1).present(line)).toBe('10 %\r')
    expect(make('pretty', 4, undefined, true).present(line)).toContain('␛[')
  },
)

it('the JSON format writes both streams to stdout', () => {
  const presenter = make('json', 1)
  expect(presenter.output).toBe('stdout')
  expect(JSON.parse(presenter.present({ text: 'a "line"', end: '\n' }))).toMatchObject({
    rank: 3,
    stream: 'stderr',
    line: 'a "line"',
  })
})

it('the JSON format escapes control characters that a terminal obeys', () => {
  const line = '\x1b[8m \u009b8m \x7f \u202e \u2066 é ✓'
  const shown = make('json', 1).present({ text: line, end: '\n' })
  expect(JSON.parse(shown)).toMatchObject({ line })
  expect(shown).toMatch(/^[ -~é✓]+\n$/)
})

it.each(['\x1b[\x008mhidden', '\x1b[1\x7f;8mhidden', '\u009b8mhidden', '\x1b]0;hidden'])(
  'control codes of a single rank reach neither a terminal nor a pipe: %j',
  (text) => {
    const line = { text, end: '\n' } as const
    expect(make('pretty', 1, undefined, true).present(line)).not.toMatch(/[\0\x1b\x7f\x9b]/)
    expect(make('pretty', 1).present(line)).not.toMatch(/[\x1b\x9b]/)
  },
)

describe('--log-prefix', () => {
  const lineOf = (prefix: string): string =>
    make('pretty', 4, prefix).present({ text: 'x', end: '\n' })

  it.each([
    ['[{role}{rank}:{host}] {time}', '[trainer3:h1] 2026-11-24T12:00:00.500Z x\n'],
    ['{node}.{local_rank} {pid} {generation} {stream}:', '1.1 4711 2 stderr: x\n'],
    ['{elapsed} | ', '1.250s | x\n'],
    ['[${role_name}${local_rank}]:', '[trainer1]: x\n'],
    ['', 'x\n'],
  ])('with the template %j shows the line %j', (template, line) => {
    expect(lineOf(template)).toBe(line)
  })

  it('precedes each line of a stack in the colour of the rank, even of a single rank', () => {
    const record = {
      level: 50,
      name: 'engine',
      runId: 'r',
      msg: 'lost',
      err: { stack: 'E\n  at y' },
    }
    const shown = make('pretty', 1, '{rank}:').present({ text: JSON.stringify(record), end: '\n' })
    expect(shown).toBe('3: ERROR engine: lost\n3: E\n3:   at y\n')
    expect(make('pretty', 4, '{rank}:', true).present({ text: 'x', end: '\n' })).toBe(
      '\x1b[35m3: \x1b[39mx\n',
    )
  })

  it('has no effect on the formats raw and json', () => {
    expect(make('raw', 4, '{rank}').present({ text: 'x', end: '\n' })).toBe('x\n')
    const json = JSON.parse(make('json', 4, '{rank}').present({ text: 'x', end: '\n' })) as object
    expect(json).toEqual({ time: '2026-11-24T12:00:00.500Z', rank: 3, stream: 'stderr', line: 'x' })
  })

  it('refuses an unknown placeholder and lists the valid ones', () => {
    expect(templateProblem('{rank} {ranks}')).toBe(
      '{ranks} is no placeholder; there are {rank}, {local_rank}, {role}, {host}, {node}, {pid}, ' +
        '{time}, {elapsed}, {stream}, {generation}, {role_name}, {hostname}',
    )
    expect(templateProblem('{')).toBeUndefined()
  })
})
