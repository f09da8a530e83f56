import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { port, token } from '../launcher/support/nodes.ts'
import { resultIn } from '../launcher/support/script.ts'
import { killLeftovers, Run, until, type Finished } from '../launcher/support/tsrun.ts'

jest.setTimeout(180_000)
const cwd = fileURLToPath(new URL('../../', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'tsrun-elastic-test-'))
const directory = join(folder, 'checkpoints')
afterEach(() => {
  killLeftovers()
  rmSync(directory, { recursive: true, force: true })
})
afterAll(() => {
  rmSync(folder, { recursive: true })
})

/** A host of a job with one or two of them, or with two, which trains for so many steps. */
function host(steps: number, nnodes = '1:2', more = ''): Run {
  const job = ['--nnodes', nnodes, '--rdzv-endpoint', `127.0.0.1:${port}`, '--log-format', 'raw']
  const conf = ['--rdzv-conf', `last_call_timeout=0.2${more}`]
  const script = ['examples/continue.ts', '--directory', directory, '--steps', String(steps)]
  // so slow that the rounding of sums over two ranks grows little
  script.push('--lr', '0.0005')
  return new Run([...job, ...conf, ...script], { cwd, env: { TSRUN_TOKEN: token } })
}

/** A supervisor: it starts the host again until it ends well. */
async function supervise(steps: number, hasStore: boolean, starts: Run[]): Promise<Finished[]> {
  const ends: Finished[] = []
  while (ends.at(-1)?.code !== 0 && ends.length < 5) {
    const run = host(steps, '2', `,is_host=${hasStore}`)
    starts.push(run)
    ends.push(await run.finished)
  }
  return ends
}

const newest = (): string => {
  try {
    return readdirSync(directory).toSorted().at(-1) ?? ''
  } catch {
    return ''
  }
}

it('training resumes from the newest checkpoint after a host joins or is lost', async () => {
  const steps = 1500
  const first = host(steps)
  await until(() => newest() > 'step-00000020', 'the first host trains alone', 60_000)
  const second = host(steps)
  const joined = (): boolean => first.stderr.includes('starting all ranks again on 2 hosts')
  await until(joined, 'the second host has joined', 60_000)
  const before = newest()
  await until(() => newest() > before, 'both train', 60_000)
  second.signal('SIGKILL')
  const { code, stdout, stderr } = await first.finished
  expect({ code, stderr }).toMatchObject({ code: 0 })
  expect(stderr).toContain('starting all ranks again on this host')
  // each attempt ends with a checkpoint and a result, as SIGTERM asks it to
  const end = stdout.slice(stdout.lastIndexOf('result {'))
  const { ranks, from, until: last, difference } = resultIn(end)
  expect({ ranks, last }).toEqual({ ranks: 1, last: steps })
  expect(`step-${String(from).padStart(8, '0')}` >= before).toBe(true)
  // a batch twice, or none, would make a difference of 0.1 and more
  expect(difference).toBeLessThan(1e-2)
})

it('supervisors restart a job after the host of its store is lost', async () => {
  const steps = 600
  const starts: Run[] = []
  const withStore = supervise(steps, true, starts)
  const without = supervise(steps, false, [])
  await until(() => newest() > 'step-00000020', 'both train', 60_000)
  const before = newest()
  starts[0]!.signal('SIGKILL')
  const [ends, others] = await Promise.all([withStore, without])
  expect(ends.map(({ code, signal }) => signal ?? code)).toEqual(['SIGKILL', 0])
  expect(others.map(({ code }) => code)).toEqual([75, 0])
  expect(others[0]!.stderr).toMatch(/first cause/)
  const {
    ranks,
    from,
    until: last,
    difference,
  } = resultIn(
    ends.map(({ stdout }) => stdout).join('') + others.map(({ stdout }) => stdout).join(''),
  )
  expect({ ranks, last }).toEqual({ ranks: 2, last: steps })
  expect(`step-${String(from).padStart(8, '0')}` >= before).toBe(true)
  expect(difference).toBeLessThan(1e-2)
})
