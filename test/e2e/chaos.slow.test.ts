import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { tsrunHere } from '../launcher/support/in-process.ts'
import {
  describeBreaking,
  describeDamage,
  describeDeaths,
  describeDelay,
  folder,
  inject,
  script,
  usualDamages,
  usualDeaths,
} from './support/chaos.ts'

describeDeaths(usualDeaths)
describeBreaking(['disconnect'])
describeDamage(usualDamages)
describeDelay(['worker'])

describe('--chaos', () => {
  it('says that a rank has no connection whose messages could be damaged', async () => {
    const faults = [{ kind: 'corrupt', rank: 1, operations: 20 }]
    const { code, stderr } = await inject(faults, { env: { TSRUN_TRANSPORT: 'node' } })
    expect({ code, stderr }).toMatchObject({ code: 0 })
    expect(stderr).toContain('chaos: this rank has no connection of the transport tcp')
  })

  it('stops a rank from mapping memory', async () => {
    const { code, stderr } = await inject([{ kind: 'address-space', rank: 1, step: 8 }], {
      what: 'maps',
    })
    expect(code).not.toBe(0)
    expect(stderr).toContain('chaos: rank 1 gets the fault address-space')
    expect(stderr).toMatch(/rank 1 of 3 (died of|was killed|ran out)/)
  })

  it('lets a job continue after a rank was suspended, busy or slow, and after its clock has jumped', async () => {
    const { code, stdout, stderr } = await inject([
      { kind: 'stop', rank: 0, step: 5, forSeconds: 0.3 },
      { kind: 'busy', rank: 1, step: 10, forSeconds: 0.3 },
      { kind: 'clock', rank: 2, step: 15, bySeconds: -7200 },
      { kind: 'slow', rank: 0, step: 20, share: 0.5, forSeconds: 0.3 },
    ])
    expect({ code, stderr }).toMatchObject({ code: 0 })
    expect(stderr.match(/chaos: /g)).toHaveLength(4)
    expect(stdout).toContain('rank 1 of attempt 0: 3, 0 s')
    expect(stdout).toContain('rank 2 of attempt 0: 3, -7200 s')
  })

  it('injects faults into restarted ranks too, and records them in the event log', async () => {
    const events = join(folder, 'events')
    const faults = [
      { kind: 'kill', seconds: 0.1 },
      { kind: 'throw', attempt: 1, rank: 0, step: 3 },
    ]
    const args = ['--max-restarts', '2', '--event-log', events]
    const { code, stdout, stderr } = await inject(faults, { args })
    expect({ code, stderr }).toMatchObject({ code: 0 })
    expect(stdout).toContain('rank 0 of attempt 2: 3, 0 s')
    const injected = readFileSync(events, 'utf8')
      .split('\n')
      .filter((line) => line.includes('"fault-injected"'))
      .map((line) => JSON.parse(line) as object)
    expect(injected).toMatchObject([
      // The seed chooses the rank.
      {
        generation: 0,
        rank: 0,
        kind: 'kill',
        what: 'kill (signal: SIGKILL)',
        when: '0.1 s after the start',
      },
      { generation: 1, kind: 'throw', rank: 0, when: expect.stringMatching(/^after step \d+$/) },
    ])
  })

  it('refuses an unreadable plan, and faults that --no-python does not support', async () => {
    const plan = join(folder, 'plan.yaml')
    const wrong = await tsrunHere(['--chaos', plan, script])
    expect(wrong).toMatchObject({ code: 2 })
    expect(wrong.stderr).toContain('no such file')
    writeFileSync(plan, 'faults: [{ kind: kill, rank: 99, seconds: 1 }]')
    const nobody = await tsrunHere(['--nproc', '3', '--chaos', plan, script])
    expect(nobody).toMatchObject({ code: 2 })
    expect(nobody.stderr).toContain('fault 1: rank is 99; the job has 3 ranks')
    writeFileSync(plan, 'faults: [{ kind: throw, seconds: 1 }]')
    const program = await tsrunHere(['--chaos', plan, '--no-python', 'sleep', '1'])
    expect(program).toMatchObject({ code: 2 })
    expect(program.stderr).toContain('throw needs ranks that are Node')
  })
})
