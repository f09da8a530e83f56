import { spawnSync } from 'node:child_process'
import { jest } from '@jest/globals'
import { missing, reportsIn, runCases, Compiled } from '../support/nccl.ts'

jest.setTimeout(120_000)

const describeIt = missing === undefined ? describe : describe.skip

if (missing !== undefined) {
  it(`skipped: no ${missing}`, () => {
    expect(missing).toBeDefined()
  })
}

describeIt('a collective on the memory of devices', () => {
  const compiled = new Compiled()
  let env: NodeJS.ProcessEnv = {}
  beforeAll(() => {
    env = { TSRUN_NCCL: '1', TSRUN_NCCL_LIBRARY: compiled.standIn('nccl-stand-in') }
  })
  afterAll(() => {
    compiled.remove()
  })

  it('ends with the time-out when the library hangs, and the process ends after it', async () => {
    const job = await runCases({ ...env, NCCL_STAND_IN_FAULT: '1:1:hang' }, 'fail')
    for (const { fail } of reportsIn(job)) {
      const code = 'ERR_TSR_OPERATION_TIMEOUT'
      expect(fail).toMatchObject([{ values: [1] }, { code }, { code }])
    }
  })

  it('does not keep a process that exits', async () => {
    const begin = performance.now()
    const job = await runCases({ ...env, NCCL_STAND_IN_FAULT: '1:1:hang' }, 'quit')
    expect(reportsIn(job)).toHaveLength(2)
    // far from the time-out of the group
    expect(performance.now() - begin).toBeLessThan(15_000)
  })

  it('is an error on every rank if they reduce different tensors', async () => {
    const job = await runCases(env, 'differ')
    for (const { differ, rank } of reportsIn(job)) {
      expect(differ).toMatchObject({ code: 'ERR_TSR_NCCL' })
      const { message } = differ as { message: string }
      expect(message).toContain(`Rank ${String(rank)}: a collective of NCCL in group world failed`)
      expect(message).toContain('tensors of different sizes')
    }
  })

  it('ends the job when a rank dies in it', async () => {
    const job = await runCases({ ...env, NCCL_STAND_IN_FAULT: '1:1:die' }, 'fail')
    expect(job.code).toBe(137)
    expect(job.stderr).toContain('rank 1 of 2 was killed by SIGKILL')
  })

  it('waits for the values, lets TensorFlow go on, and keeps the memory until it is aborted', () => {
    const { status, stdout } = spawnSync(compiled.streams(), { encoding: 'utf8', timeout: 60_000 })
    expect(status).toBe(0)
    const lines = stdout.trim().split('\n')
    const [late, blocked, afterwards, end] = lines.map((line) => JSON.parse(line) as object)
    // computed 200 ms after the call, and freed before JavaScript hears of it
    expect(late).toMatchObject({ error: '', value: 42, references: 1 })
    expect(blocked).toMatchObject({
      error: 'the time-out has ended',
      timedOut: true,
      references: 2,
    })
    expect(afterwards).toMatchObject({ timedOut: true })
    expect(end).toMatchObject({ aborts: 1, references: 1, hasEnded: true })
    const times = { ...blocked, ...end } as { milliseconds: number; computed: number }
    expect(times.computed).toBeLessThan(times.milliseconds)
  })
})
