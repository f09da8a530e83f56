import { killLeftovers, Run } from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

it('--job-timeout does not end the grace period of a job that is being stopped', async () => {
  const run = new Run(['--nproc', '2', '--job-timeout', '10', '--grace', '11', 'deaf.mjs'])
  await run.announced(2)
  run.signal('SIGTERM')
  const { code, stderr } = await run.finished
  expect(code).toBe(143)
  expect(stderr).toContain('ranks 0-1 did not stop within 11 s: SIGKILL')
  expect(stderr).not.toContain('killing the ranks now')
})
