import { cpSync, mkdirSync, readdirSync, statSync, utimesSync } from 'node:fs'
import { join } from 'node:path'
import { tsrunHere } from '../launcher/support/in-process.ts'
import { tsrun, type Finished } from '../launcher/support/tsrun.ts'
import { compare, cwd, describeNeverEntering, fail, logs, sentence } from './support/flight.ts'

describeNeverEntering(['sleep'])

describe('without --log-dir', () => {
  const run = async (program: string): Promise<Finished> => {
    const env = { TIMEOUT: '500', TMPDIR: logs }
    return await tsrun(['--nproc', '4', '--grace', '0.3', program], { cwd, env })
  }
  const folders = (): string[] =>
    readdirSync(logs).filter((name) => name.startsWith('tsrun-flight-'))

  it('a failed job keeps the records in a private folder for a week, and its report names the folder', async () => {
    const week = Date.now() / 1000 - 7 * 86_400
    for (const [kept, age] of Object.entries({ old: -60, new: 60 })) {
      mkdirSync(join(logs, `tsrun-flight-${kept}`))
      utimesSync(join(logs, `tsrun-flight-${kept}`), week, week + age)
    }
    const { stderr } = await run('never-enters.mjs')
    const [name] = folders().filter((one) => one !== 'tsrun-flight-new')
    expect(folders()).toContain('tsrun-flight-new')
    expect(folders()).not.toContain('tsrun-flight-old')
    expect(stderr).toContain(`records      tsrun flight ${join(logs, name!)}`)
    expect(statSync(join(logs, name!)).mode & 0o777).toBe(0o700)
    expect((await tsrunHere(['flight', join(logs, name!)])).stdout).toMatch(sentence)
  })

  it('a successful job leaves no records', async () => {
    expect(await run('../launcher/hello.mjs')).toMatchObject({ code: 0 })
    expect(folders()).toEqual([])
  })
})

it('tsrun flight names a rank that waits for a message and never enters the collective', async () => {
  await fail({ ELSEWHERE: 'receive', TSRUN_ENGINE: 'inline' })
  expect(await compare()).toMatch(sentence)
})

it('tsrun flight compares the last attempt with records, by default of the newest run', async () => {
  /** Runs a job, and returns its id. */
  const start = async (restarts: number): Promise<string> => {
    const before = readdirSync(logs)
    const flags = ['--nproc', '4', '--grace', '0.3', '--log-dir', logs]
    const args = [...flags, '--max-restarts', `${restarts}`, 'never-enters.mjs']
    await tsrun(args, { cwd, env: { TIMEOUT: '300' } })
    return readdirSync(logs).find((name) => !before.includes(name))!
  }
  const compared = async (...path: string[]): Promise<string[]> => {
    const { code, stdout } = await tsrunHere(['flight', join(logs, ...path)])
    expect(code).toBe(0)
    expect(stdout).toMatch(sentence)
    return stdout.split('\n')
  }
  const older = await start(1)
  const last = join(logs, older, 'attempt_1', 'flight')
  const title = `run ${older}, attempt 1: records of 4 of 4 ranks`
  for (const path of [[older], [older, 'attempt_1'], []]) {
    const [first, second, ...rest] = await compared(...path)
    expect([first, second]).toEqual([title, `in ${last}`])
    expect(rest.join()).not.toContain('attempt')
  }
  expect((await compared(older, 'attempt_0'))[0]).toContain(`run ${older}, attempt 0`)
  // one that ended well
  mkdirSync(join(logs, older, 'attempt_2'))
  expect(await compared(older)).toContain(title)
  const newer = await start(0)
  expect((await compared())[0]).toContain(`run ${newer}, attempt 0`)
  // a folder for the records of many runs
  cpSync(join(last, 'rank-2.jsonl'), join(logs, newer, 'attempt_0', 'flight', 'rank-2.jsonl'))
  const mixed = await tsrunHere(['flight', join(logs, newer)])
  expect(mixed.stdout).toContain(
    `left out: the record of rank 2, which belongs to run ${older}, attempt 1`,
  )
  expect(mixed.stdout).toContain('no record of rank 2')
})

it.each([
  [[], 'tsrun flight needs an argument'],
  [['/nowhere'], 'There are no flight records in /nowhere: it is not a folder'],
  [[cwd], 'there is no rank-<rank>.jsonl in it'],
])('tsrun flight %j is refused', async (args, problem) => {
  const { code, stderr } = await tsrunHere(['flight', ...args])
  expect(code).toBe(2)
  expect(stderr).toContain(problem)
})
