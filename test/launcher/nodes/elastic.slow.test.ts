import { RunHere } from '../support/in-process.ts'
import { describeStops, elastic, env, lastCall, stopsHost0 } from '../support/elastic.ts'
import { killLeftovers, Run, until } from '../support/tsrun.ts'

afterEach(killLeftovers)

describeStops([stopsHost0])

describe('--nnodes MIN:MAX', () => {
  it('does not count ranks as failed that end because another host leaves', async () => {
    const args = elastic('1:2', ...lastCall(0.3), 'saves-together.mjs')
    const zero = new RunHere(args, { env })
    await until(() => zero.stdout.includes('attempt 0 of 1'), 'the first attempt')
    const leaving = new Run(args, { env })
    await until(() => zero.stdout.includes('attempt 1 of 2'), 'both hosts')
    await until(() => leaving.stdout.includes('attempt 1 of 2'), 'both ranks')
    leaving.signal('SIGTERM')
    const [{ code, stdout }, left] = await Promise.all([zero.finished, leaving.finished])
    expect([code, left.code]).toEqual([0, 143])
    expect(stdout).toContain('saved')
    expect(left.stdout).toContain('saved')
    expect(stdout).toContain('attempt 2 of 1')
  })

  it('fails if too few hosts are left for --rdzv-timeout, and names the lost host', async () => {
    const args = (isHost: boolean): string[] => [
      ...elastic('2:3', '--rdzv-conf', `last_call_timeout=0.2,timeout=4,is_host=${isHost}`),
      ...['elastic.mjs', '9'],
    ]
    const leaving = new Run(args(false), { env })
    const zero = new RunHere(args(true), { env })
    await leaving.announced(1, 'attempt 0 of 2')
    leaving.signal('SIGKILL')
    const { code, stderr } = await zero.finished
    expect(code).toBe(75)
    expect(stderr).toContain('did not come together within 4 s')
    expect(stderr).toMatch(/first cause +node 1/)
  })
})
