import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { endLesson, type Course, type Lesson } from '../../examples/lib/course.ts'

const before = process.env['TSRUN_HOME']

beforeEach(() => {
  process.env['TSRUN_HOME'] = mkdtempSync(join(tmpdir(), 'tsrun-course-'))
})

afterEach(() => {
  rmSync(process.env['TSRUN_HOME']!, { recursive: true })
  if (before === undefined) delete process.env['TSRUN_HOME']
  else process.env['TSRUN_HOME'] = before
})

const course: Course = { steps: 2, batch: 64, layers: 16, width: 32, lr: 0.0005, seed: 0 }

function lesson(name: string, more: Partial<Lesson> = {}): Lesson {
  const utilisation = [{ of: 'CPU', mean: 0.9, least: 0.8 }] as const
  return {
    name,
    ranks: 1,
    losses: [2.5, 2.4],
    milliseconds: 10,
    utilisation,
    bytes: 2 ** 20,
    ...more,
  }
}

/** What a lesson prints at its end. */
function end(own: Course, ...of: Parameters<typeof lesson>): string {
  const log = jest.spyOn(console, 'log').mockImplementation(() => undefined)
  try {
    endLesson(own, lesson(...of))
    return log.mock.calls.flat().join('\n')
  } finally {
    log.mockRestore()
  }
}

/** The lessons of the table that a lesson ends with. */
function rowsAfter(...of: Parameters<typeof end>): string[] {
  return Array.from(end(...of).matchAll(/^ *(\d\d \w+\*?) {2,}\d/gm), ([, name]) => name!)
}

describe('the table of the course', () => {
  it('keeps its rows while other flags are tried', () => {
    expect(rowsAfter(course, '01 monolith')).toEqual(['01 monolith'])
    expect(rowsAfter({ ...course, width: 64 }, '01 monolith')).toEqual(['01 monolith'])
    expect(rowsAfter(course, '02 split')).toEqual(['01 monolith', '02 split'])
    expect(rowsAfter(course, '02 split')).toEqual(['01 monolith', '02 split'])
  })

  it('marks the rows of flags that change only how a lesson runs', () => {
    const variant = '--microbatches 4 --overlap off'
    rowsAfter(course, '04 naive')
    const text = end(course, '04 naive', { variant })
    expect(text).toContain(`* with ${variant}`)
    expect(rowsAfter(course, '05 gpipe', { variant })).toEqual([
      '04 naive',
      '04 naive*',
      '05 gpipe*',
    ])
    expect(rowsAfter(course, '05 gpipe')).toEqual(['04 naive', '05 gpipe'])
  })

  it('shows the row of a solution once', () => {
    expect(rowsAfter(course, '05 reversed')).toEqual(['05 reversed'])
    expect(rowsAfter(course, '05 gpipe')).toEqual(['05 gpipe'])
  })

  it('starts again after a lesson with other losses', () => {
    rowsAfter(course, '01 monolith', { losses: [2.5, 2.3] })
    expect(() => end(course, '02 split')).toThrow('do not train alike')
    expect(rowsAfter(course, '01 monolith')).toEqual(['01 monolith', '02 split'])
  })

  it('shows the mean and the least utilisation', () => {
    expect(end(course, '01 monolith')).toContain('CPU      mean 90 %, least 80 %, by rank')
  })
})
