import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'
import { describeLecture } from './lecture.ts'

jest.setTimeout(240_000)
afterEach(killLeftovers)

const cwd = fileURLToPath(new URL('../../', import.meta.url))

describeLecture('small', [4], [1, 4])

it('tensor-parallel.ts refuses a width that does not divide by the ranks', async () => {
  const job = ['--nproc', '2', '--no-summary', 'examples/lecture/tensor-parallel.ts']
  const run = await tsrun([...job, '--width', '63'], { cwd })
  expect(run.code).toBe(2)
  expect(run.stderr).toContain('--width 63 does not divide by 2')
})
