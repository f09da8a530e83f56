import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { csv, jsonl, tensorBoard, type MetricLog } from '@tsrun/training'
import { makeFolder, removeFolders } from '../checkpoint/support/folder.ts'
import { failure } from '../parallel/support/failure.ts'
import { eventsIn, parse, type Fields } from './support/event-file.ts'

afterEach(removeFolders)

const kinds = [
  ['jsonl', jsonl],
  ['csv', csv],
  ['tensorBoard', tensorBoard],
] as const

function logSome(log: MetricLog): void {
  log.scalar('loss', 0.5, 0)
  log.scalar('evaluate/accuracy, top 1', NaN, 300)
  log.text('sample', 'Call me “Ishmael”', 1)
  log.histogram('weights', Float32Array.of(0, 1, 2, 3, 15, NaN, Infinity), 2)
}

function linesOf(path: string): Record<string, unknown>[] {
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n')
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>)
}

describe('jsonl', () => {
  it('writes one object per line', async () => {
    const path = join(makeFolder(), 'runs', 'metrics.jsonl')
    const log = jsonl(path, { rank: 0 })
    const before = Date.now() / 1000
    logSome(log)
    await log.close()
    const lines = linesOf(path)
    for (const { time } of lines) expect(Math.abs(Number(time) - before)).toBeLessThan(60)
    expect(lines).toMatchObject([
      { step: 0, name: 'loss', value: 0.5 },
      { step: 300, name: 'evaluate/accuracy, top 1', value: 'NaN' },
      { step: 1, name: 'sample', text: 'Call me “Ishmael”' },
      { step: 2, name: 'weights', histogram: { count: 5, min: 0, max: 15, sum: 21 } },
    ])
    const { counts, limits } = lines[3]!['histogram'] as Record<string, number[]>
    expect(counts!.flatMap((count, i) => (count > 0 ? [[i, count]] : []))).toEqual([
      ...[
        [0, 1],
        [2, 1],
        [4, 1],
        [6, 1],
        [29, 1],
      ],
    ])
    expect([limits![0], limits!.at(-1)]).toEqual([0.5, 15])
  })

  it('appends to a file, also after an incomplete line', async () => {
    const path = join(makeFolder(), 'metrics.jsonl')
    writeFileSync(path, '{"step":0,"name":"loss","value":1}\n{"step":1,"na')
    const log = jsonl(path, { rank: 0 })
    log.scalar('loss', 0.25, 1)
    await log.close()
    const lines = readFileSync(path, 'utf8').split('\n')
    expect(lines[1]).toBe('{"step":1,"na')
    expect(JSON.parse(lines[2]!)).toMatchObject({ step: 1, name: 'loss', value: 0.25 })
    expect(lines).toHaveLength(4)
  })
})

describe('csv', () => {
  it('writes one row per value, below one header', async () => {
    const path = join(makeFolder(), 'metrics.csv')
    for (let start = 0; start < 2; start++) {
      const log = csv(path, { rank: 0 })
      logSome(log)
      await log.close()
    }
    const rows = ['0,loss,0.5', '300,"evaluate/accuracy, top 1",NaN']
    expect(readFileSync(path, 'utf8')).toBe(['step,name,value', ...rows, ...rows, ''].join('\n'))
  })
})

describe('tensorBoard', () => {
  const text = (fields: Fields, field: number): string => String(fields.get(field)![0])
  const inner = (fields: Fields, field: number): Fields => parse(fields.get(field)![0] as Buffer)
  const doubles = (bytes: Buffer): number[] =>
    Array.from({ length: bytes.length / 8 }, (_, i) => bytes.readDoubleLE(8 * i))

  it('writes events that an independent reader understands', async () => {
    const folder = makeFolder()
    const log = tensorBoard(folder, { rank: 0 })
    logSome(log)
    await log.close()
    expect(readdirSync(folder)[0]).toMatch(/^events\.out\.tfevents\.\d{10}\./)
    const [version, ...events] = eventsIn(folder)
    expect(text(version!, 3)).toBe('brain.Event:2')
    const values = events.map((event) => inner(inner(event, 5), 1))
    expect(events.map((event) => event.get(2))).toEqual([[0], [300], [1], [2]])
    expect(values.map((value) => text(value, 1))).toEqual([
      ...['loss', 'evaluate/accuracy, top 1', 'sample', 'weights'],
    ])
    expect(values[0]!.get(2)).toEqual([0.5])
    expect(values[1]!.get(2)).toEqual([NaN])
    expect(text(inner(values[2]!, 8), 8)).toBe('Call me “Ishmael”')
    expect(text(inner(inner(values[2]!, 9), 1), 1)).toBe('text')
    const histogram = inner(values[3]!, 5)
    expect([1, 2, 3, 4, 5].map((field) => histogram.get(field)![0])).toEqual([0, 15, 5, 21, 239])
    const counts = doubles(histogram.get(7)![0] as Buffer)
    expect(doubles(histogram.get(6)![0] as Buffer)).toHaveLength(counts.length)
    expect(counts.reduce((a, b) => a + b)).toBe(5)
  })

  it('starts a new file after a restart', async () => {
    const folder = makeFolder()
    for (let start = 0; start < 2; start++) {
      const log = tensorBoard(folder, { rank: 0 })
      log.scalar('loss', 1, start)
      await log.close()
    }
    expect(readdirSync(folder)).toHaveLength(2)
  })
})

describe.each(kinds)('%s', (name, create) => {
  it('writes on rank 0, or on every rank to its own place', async () => {
    const folder = makeFolder()
    const silent = create(join(folder, 'a.log'), { rank: 1 })
    silent.scalar('loss', 1, 0)
    await silent.close()
    expect(readdirSync(folder)).toEqual([])
    const log = create(join(folder, 'a.log'), { rank: 1, ranks: 'all' })
    log.scalar('loss', 1, 0)
    await log.close()
    const place = name === 'tensorBoard' ? 'a.log/rank-1' : 'a.rank-1.log'
    expect(existsSync(join(folder, place))).toBe(true)
  })

  it('refuses invalid steps, unknown options, and metrics after it was closed', async () => {
    const path = join(makeFolder(), 'a')
    const refused = (message: RegExp) => failure('ERR_TSR_ARGUMENT', message)
    expect(() => create(path, { ranks: 'some' as 'all' })).toThrow(refused(/ranks/))
    expect(() => create('')).toThrow(refused(/path/))
    const log = create(path, { rank: 0 })
    expect(() => {
      log.scalar('loss', 1, -1)
    }).toThrow(refused(/step of loss/))
    expect(() => {
      log.scalar('', 1, 1)
    }).toThrow(refused(/name of a metric/))
    await log.close()
    expect(() => {
      log.scalar('loss', 1, 1)
    }).toThrow(refused(/closed/))
  })

  it('throws errors of the file system from flush and close', async () => {
    const path = join(makeFolder(), 'file')
    writeFileSync(path, '')
    const log = create(join(path, 'below'), { rank: 0 })
    log.scalar('loss', 1, 0)
    await expect(log.flush()).rejects.toThrow(/ENOTDIR|EEXIST/)
    await expect(log.close()).rejects.toThrow(/ENOTDIR|EEXIST/)
  })
})

describe('an unflushed metric', () => {
  /** Runs a process that logs one value with `csv`, and exits at once. @returns its stderr */
  const logAndExit = (path: string): string => {
    const source = `import { csv } from '@tsrun/training'
      csv(${JSON.stringify(path)}).scalar('loss', 1, 0)
      process.exit(0)`
    const args = ['--input-type=module', '-e', source]
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' })
    expect(status).toBe(0)
    return stdout + stderr
  }

  it('is written when the process exits, below the header of a new file', () => {
    const path = join(makeFolder(), 'metrics.csv')
    expect(logAndExit(path)).toBe('')
    expect(readFileSync(path, 'utf8')).toBe('step,name,value\n0,loss,1\n')
    writeFileSync(path, 'step,name,value\n0,lo')
    expect(logAndExit(path)).toBe('')
    expect(readFileSync(path, 'utf8')).toBe('step,name,value\n0,lo\n0,loss,1\n')
  })

  it('is named in one line if it cannot be written at exit, and the exit code stays', () => {
    const path = join(makeFolder(), 'file')
    writeFileSync(path, '')
    const output = logAndExit(join(path, 'metrics.csv'))
    expect(output).toContain('the last metrics could not be written')
    expect(output).toMatch(/ENOTDIR|EEXIST/)
    expect(output.trimEnd().split('\n')).toHaveLength(1)
  })
})
