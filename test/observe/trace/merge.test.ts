import { execFileSync } from 'node:child_process'
import { lstatSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { spansFolder } from '@tsrun/distributed/record'
import { findTrace, mergeTrace } from '@tsrun/observe'
import { RUN, writeSpans } from './files.ts'

let directory = ''
beforeEach(() => (directory = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  rmSync(directory, { recursive: true })
})

it('a merged trace does not replace a FIFO', () => {
  writeSpans(directory, [{ rank: 0, kind: 'step', start: 0, end: 1 }])
  const path = join(directory, 'out.json')
  execFileSync('mkfifo', [path])
  expect(() => mergeTrace([directory], RUN, path)).toThrow(`${path} is a FIFO, not a regular file`)
  expect(lstatSync(path).isFIFO()).toBe(true)
  expect(readdirSync(directory).sort()).toEqual(['out.json', 'spans'])
})

it('a trace whose files cannot be read is reported with the first reason', () => {
  const folder = spansFolder(directory, RUN)
  mkdirSync(folder, { recursive: true })
  execFileSync('mkfifo', [join(folder, 'attempt-0.rank-0.1.spans')])
  expect(() => findTrace([directory], ['traces'], undefined)).toThrow(
    /there is no trace in traces; \S+attempt-0\.rank-0\.1\.spans.* is a FIFO, not a regular file/,
  )
})
