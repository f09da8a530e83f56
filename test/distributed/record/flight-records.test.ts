import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readFlightFolder, writeFlightDump } from '@tsrun/distributed/record'
import { dumpOf, done } from './dumps.ts'

let folder = ''
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  rmSync(folder, { recursive: true, force: true })
})

it('flight logs are read as they were written, in rank order', () => {
  const dumps = [0, 2, 10].map((rank) => dumpOf(rank, 11, done(3)))
  for (const dump of dumps.toReversed()) writeFlightDump(join(folder, 'made'), dump)
  expect(readFlightFolder(join(folder, 'made'))).toEqual({ dumps, problems: [] })
})

it('a flight log replaces the previous one, and leaves no other files', () => {
  writeFlightDump(folder, dumpOf(0, 1, done(3)))
  const path = writeFlightDump(folder, dumpOf(0, 1, done(5)))
  expect(readFlightFolder(folder).dumps[0]?.entries).toHaveLength(5)
  expect(readdirSync(folder).map((name) => join(folder, name))).toEqual([path])
})

it.each([
  ['nothing', () => '', 'not a dump of a flight recorder'],
  ['other JSON', () => '{"hello":1}\n', 'not a dump of a flight recorder'],
  ['null', () => 'null\n', 'not a dump of a flight recorder'],
  ['another version', (text: string) => text.replace('"version":1', '"version":9'), 'version 9'],
  ['no groups', (text: string) => text.replace('"groups"', '"grapes"'), 'the header is damaged'],
  ['half a line', (text: string) => text.slice(0, -20), 'line 4 is damaged'],
  ['an odd entry', (text: string) => `${text}{"number":1}\n`, 'line 5 is damaged'],
])('the reader of flight logs names a file that holds %s', (_, damage, problem) => {
  writeFlightDump(folder, dumpOf(1, 2, []))
  const path = writeFlightDump(folder, dumpOf(0, 2, done(3)))
  writeFileSync(path, damage(readFileSync(path, 'utf8')))
  const { dumps, problems } = readFlightFolder(folder)
  expect(dumps.map(({ header }) => header.rank)).toEqual([1])
  expect(problems).toEqual([expect.stringContaining(path)])
  expect(problems[0]).toContain(problem)
})
