import type { LogFormat } from '../../../packages/launcher/src/args/output-options.ts'
import {
  makePresenter,
  rankPrefix,
  type Presenter,
} from '../../../packages/launcher/src/logs/presenter.ts'

const make = (format: LogFormat, worldSize: number, colour = false): Presenter =>
  makePresenter({ format, worldSize, colour: { stdout: colour, stderr: colour } }, 3, 'stderr')

it('pads the names of ranks to the widest', () => {
  expect(rankPrefix(3, 4, false)).toBe('[rank 3] ')
  expect(rankPrefix(3, 101, false)).toBe('[rank 3]   ')
  expect(rankPrefix(100, 101, false)).toBe('[rank 100] ')
})

it('keeps the colour of a rank, whatever the number of ranks', () => {
  expect(rankPrefix(3, 4, true)).toBe('\x1b[35m[rank 3]\x1b[39m ')
  expect(rankPrefix(3, 11, true)).toBe('\x1b[35m[rank 3]\x1b[39m  ')
})

it('puts the name before every line, also of a stack in a log record', () => {
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

it('leaves the JSON of other loggers alone', () => {
  const text = '{"level":30,"time":1,"pid":1,"hostname":"h","msg":"mine"}'
  expect(make('pretty', 4).present({ text, end: '\n' })).toBe(`[rank 3] ${text}\n`)
  expect(make('raw', 4).present({ text, end: '\n' })).toBe(`${text}\n`)
})

it('gives a single rank its output as it wrote it', () => {
  expect(make('pretty', 1).present({ text: '10 %', end: '\r' })).toBe('10 %\r')
})

it('writes JSON of both streams to stdout', () => {
  const presenter = make('json', 1)
  expect(presenter.output).toBe('stdout')
  expect(JSON.parse(presenter.present({ text: 'a "line"', end: '\n' }))).toMatchObject({
    rank: 3,
    stream: 'stderr',
    line: 'a "line"',
  })
})
