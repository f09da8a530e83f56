import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  OLDER,
  openRankFiles,
  rankReader,
  readLastLines,
  type RankReader,
} from '../../internals/launcher/logs.ts'

let folder: string
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  rmSync(folder, { recursive: true })
})

const header = {
  ...{ runId: 'run', prefix: null, rank: 0, localRank: 0, worldSize: 1, role: 'default' },
  ...{ host: 'here', node: 0, pid: 1, generation: 0, startedAt: 0 },
}
const streams = ['stdout', 'stderr'] as const

function textOf(reader: RankReader): string {
  let text = ''
  while (reader.peek() !== undefined) text += reader.next().bytes.toString()
  return text
}

it('log files of a limited size keep the newest lines of both streams, in two sets of files', () => {
  const failures: string[] = []
  const files = openRankFiles(folder, streams, (reason) => failures.push(reason), 300)
  files.describe(header)
  const lines = Array.from({ length: 30 }, (_, i) => `line ${i}`)
  for (const [i, text] of lines.entries()) {
    files.write(streams[i % 2]!, [
      { text: text.slice(0, 2), end: '' },
      { text: text.slice(2), end: '\n' },
    ])
  }
  files.close()
  expect(failures).toEqual([])
  expect(readdirSync(folder).sort()).toEqual(['index.jsonl', OLDER, 'stderr.log', 'stdout.log'])
  const reader = rankReader(folder, 0)
  const kept = textOf(reader).trimEnd().split('\n')
  expect(kept.length).toBeGreaterThan(5)
  expect(kept.length).toBeLessThan(15)
  expect(kept).toEqual(lines.slice(-kept.length))
  expect(reader.header).toMatchObject({ runId: 'run', worldSize: 1 })
  reader.close()
})

it('a reader of log files continues with the files that replace them', () => {
  const files = openRankFiles(folder, streams, () => undefined, 60)
  files.describe(header)
  const reader = rankReader(folder, 0)
  files.write('stdout', [{ text: 'short', end: '\n' }])
  expect(textOf(reader)).toBe('short\n')
  files.write('stderr', [{ text: 'longer', end: '\n' }])
  files.write('stdout', [{ text: 'new', end: '\n' }])
  reader.openNew()
  expect(textOf(reader)).toBe('longer\nnew\n')
  files.close()
  reader.close()
})

const described = JSON.stringify({ format: 1, ...header })

it.each([
  [described, '[1,"stdout",1e15]'],
  [described, '[1,"stdout",-5]'],
  [described, '[1,"stdout",1.5]'],
  [described, '[1,"constructor",3]'],
  [described, '["x","stdout",3]'],
  [described, '[1e300,"stdout",3]'],
  [described, '[]'],
  [described, 'null'],
  ['{}', '[1,"stdout",6]'],
  ['"text"', '[1,"stdout",6]'],
  [JSON.stringify({ format: 1, ...header, rank: 100 }), '[1,"stdout",6]'],
])('a reader of log files shows all output of a damaged index: %s %s', (first, entry) => {
  writeFileSync(join(folder, 'stdout.log'), 'hello\n')
  writeFileSync(join(folder, 'index.jsonl'), `${first}\n${entry}\n{"endedAt":5}\n`)
  const reader = rankReader(folder, 0)
  const shown = textOf(reader) + [...reader.rest()].map(({ bytes }) => bytes.toString()).join('')
  expect(shown).toBe('hello\n')
  expect(reader.header?.runId).toBe(first === described ? 'run' : undefined)
  reader.close()
})

it('the last lines of a run are the newest of each rank, shortened, and the others are counted', () => {
  const rank = join(folder, 'attempt_0/0')
  mkdirSync(rank, { recursive: true })
  // A line without an end is cut into parts of 64 KiB.
  writeFileSync(join(rank, 'stdout.log'), 'x'.repeat(40 * 2 ** 16))
  writeFileSync(join(rank, 'index.jsonl'), '')
  const { lines, dropped } = readLastLines([folder], 3)
  expect(lines.map(({ text }) => text.length)).toEqual([2002, 2002, 2002])
  expect(dropped).toBe(37)
})
