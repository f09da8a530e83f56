import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

jest.setTimeout(180_000)

const fixture = fileURLToPath(new URL('../fixtures/training/killed-fit.mjs', import.meta.url))

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-killed-fit-'))
})
afterEach(() => {
  killLeftovers()
  rmSync(folder, { recursive: true, force: true })
})

interface Result {
  readonly rank: number
  readonly life: number
  readonly digest: string
  readonly last: readonly number[]
}

/**
 * @param ends - the step after which each life of the job ends
 * @param delay - in milliseconds after that step
 */
async function train(
  name: string,
  options: object,
  ends: readonly number[],
  delay: number,
): Promise<Result[]> {
  const job = ['--nproc', '2', '--max-restarts', '3', '--log-format', 'raw', '--no-summary']
  const script = [fixture, join(folder, name), JSON.stringify(options), JSON.stringify(ends)]
  const { code, stdout, stderr } = await tsrun([...job, ...script, String(delay)])
  if (code !== 0) throw new Error(`${JSON.stringify({ ends, delay })}: ${stderr}`)
  return stdout
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Result)
    .sort((a, b) => a.rank - b.rank)
}

describe('fit, killed at random moments,', () => {
  it.each<[string, object]>([
    ['replicas', {}],
    ['sharded parameters', { zero: 3 }],
    ['a pipeline', { mesh: { pp: 2 }, microbatches: 4 }],
  ])('resumes to the same parameters: %s', async (name, options) => {
    const whole = await train('whole', options, [], 0)
    // The result must not depend on the moment, so it may be any.
    const ends = [1, 14, 27].map((from) => from + Math.floor(Math.random() * 12))
    const delay = Math.random() * 20
    const killed = await train('killed', options, ends, delay)
    // With the moments, which another run would not have.
    const wanted = whole.map((result) => ({ ...result, life: 3 }))
    expect({ ends, delay, results: killed }).toEqual({ ends, delay, results: wanted })
    expect(new Set(whole.map(({ digest }) => digest)).size).toBe(name === 'a pipeline' ? 2 : 1)
  })
})
