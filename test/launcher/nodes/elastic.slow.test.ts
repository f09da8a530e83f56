import { RunHere } from '../support/in-process.ts'
import {
  describeStops,
  elastic,
  env,
  lastCall,
  stopsHost0,
  stopsOtherHost,
} from '../support/elastic.ts'
import { allFinished } from '../support/nodes.ts'
import { killLeftovers, Run, until } from '../support/tsrun.ts'

afterEach(killLeftovers)

describeStops([stopsHost0, stopsOtherHost])

describe('--nnodes MIN:MAX', () => {
  it('starts with the minimum of hosts, and restarts when a host joins or is lost', async () => {
    const args = elastic('1:2', ...lastCall(0.3), 'elastic.mjs', '2')
    const first = new RunHere(args, { env })
    await until(() => first.stdout.includes('attempt 0 of 1 rank=0'), 'the first attempt')
    const second = new Run(args, { env })
    await until(() => first.stdout.includes('attempt 1 of 2 rank=0'), 'an attempt of two hosts')
    await second.announced(1, 'attempt 1 of 2')
    expect(first.stderr).toMatch(/has joined; starting all ranks again on 2 hosts/)
    second.signal('SIGKILL')
    const { code, stdout, stderr } = await first.finished
    expect({ code, stderr }).toMatchObject({ code: 0 })
    expect(stdout).toContain('attempt 2 of 1 rank=0')
    expect(stderr).toMatch(
      /node 1 \(.*\) is gone: its launcher has ended; starting all ranks again on this host/,
    )
  })

  it('continues without a host that is stopped by SIGTERM', async () => {
    const args = elastic('1:2', ...lastCall(0.3), 'elastic.mjs', '2')
    const zero = new RunHere(args, { env })
    await until(() => zero.stdout.includes('attempt 0 of 1 rank=0'), 'the first attempt')
    const leaving = new Run(args, { env })
    await leaving.announced(1, 'attempt 1 of 2')
    leaving.signal('SIGTERM')
    const [{ code, stdout, stderr }, left] = await Promise.all([zero.finished, leaving.finished])
    expect({ code, stderr }).toMatchObject({ code: 0 })
    expect(stdout).toContain('attempt 2 of 1 rank=0')
    expect(stderr).toMatch(
      /node 1 \(.*\) is gone: it was stopped by SIGTERM; starting all ranks again on this host/,
    )
    expect(left.code).toBe(143)
    expect(left.stderr).toContain('tsrun: SIGTERM: stopping the ranks (SIGKILL after 1 s)\n')
    expect(left.stderr).toContain('tsrun: this host has left the job, which continues without it\n')
  })

  it('waits for more hosts until last_call_timeout, or until the maximum has joined', async () => {
    const args = elastic('1:3', ...lastCall(60), 'hello.mjs')
    const runs = [0, 1, 2].map(() => new RunHere(args, { env }))
    expect((await allFinished(runs)).map(({ code }) => code)).toEqual([0, 0, 0])
    expect(runs.map(({ stdout }) => stdout).join('')).toContain('hello from rank 2 of 3')
  })

  it('can be retried if SIGTERM reaches node 0 before the minimum has joined', async () => {
    const args = elastic('3:4', 'hello.mjs')
    const zero = new RunHere(args, { env })
    await until(() => zero.stderr.includes('waiting for more nodes: 1 of 3'), 'node 0 waits')
    const other = new RunHere(args, { env })
    await until(() => zero.stderr.includes('2 of 3'), 'both wait')
    zero.interrupt({ exitCode: 143, reason: 'SIGTERM' })
    expect((await allFinished([zero, other])).map(({ code }) => code)).toEqual([75, 75])
  })

  it('admits a host that comes back', async () => {
    const args = elastic('2:3', ...lastCall(0.2), 'elastic.mjs', '1')
    const zero = new RunHere(args, { env })
    await until(() => zero.stderr.includes('waiting for more nodes: 1 of 2 to 3'), 'it waits')
    const leaving = new Run(args, { env })
    await leaving.announced(1, 'attempt 0 of 2')
    leaving.signal('SIGKILL')
    await until(() => zero.stderr.includes('waiting for more nodes'), 'it waits again')
    const back = new RunHere(args, { env })
    const ends = await allFinished([zero, back])
    expect(ends.map(({ code }) => code)).toEqual([0, 0])
    expect(back.stdout).toContain('attempt 1 of 2 rank=1')
  })

  it('refuses a host above the maximum and keeps the job running', async () => {
    const args = elastic('1:2', ...lastCall(60), 'elastic.mjs', '9')
    const zero = new RunHere(args, { env })
    const one = new RunHere(args, { env })
    await until(() => one.stdout.includes('attempt 0 of 2'), 'the job runs')
    const third = await new RunHere(args, { env }).finished
    expect(third).toMatchObject({ code: 2, stderr: expect.stringContaining('has its 2 nodes') })
    expect(zero.stdout).not.toContain('attempt 1')
    zero.interrupt()
    expect((await allFinished([zero, one])).map(({ code }) => code)).toEqual([130, 130])
  })

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
