import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { resultIn, runScript } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

jest.setTimeout(240_000)
const directory = join(mkdtempSync(join(tmpdir(), 'tsrun-continue-test-')), 'checkpoints')
afterEach(killLeftovers)
afterAll(() => {
  rmSync(join(directory, '..'), { recursive: true })
})

async function train(nproc: number, ...flags: string[]): Promise<Record<string, number>> {
  return resultIn(await runScript(nproc, 'examples/continue.ts', ...flags))
}

describe('continue.ts', () => {
  it('resumes checkpoints of other sizes and layouts, with the losses of one process', async () => {
    const job = (nproc: number, ...flags: string[]) =>
      train(nproc, '--directory', directory, ...flags)
    const first = await job(4, '--pp', '2', '--stop', '8')
    expect(first).toMatchObject({ ranks: 4, from: 0, until: 8 })
    const second = await job(4, '--tp', '4', '--stop', '13')
    expect(second).toMatchObject({ ranks: 4, from: 8, until: 13 })
    const third = await job(1, '--steps', '18')
    expect(third).toMatchObject({ ranks: 1, from: 13, until: 18 })
    for (const { difference } of [first, second, third]) expect(difference).toBeLessThan(1e-5)
    expect(readdirSync(directory)).toEqual(['step-00000015', 'step-00000018'])
  })

  it.each([1, 2])('saves and resumes in one job of %i ranks', async (nproc) => {
    const { from, until, difference } = await train(nproc, '--steps', '12')
    expect({ from, until }).toEqual({ from: 6, until: 12 })
    expect(difference).toBeLessThan(1e-5)
  })
})
