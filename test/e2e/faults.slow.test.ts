import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { formatTable } from '@tsrun/core'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

/** `npm run faults` runs 200 of them. */
const count = Number(process.env['FAULTS'] ?? 21)
const seed = Number(process.env['FAULTS_SEED'] ?? 1)
const RANKS = 8

jest.setTimeout(60_000 + count * 30_000)
let temporary = ''
beforeEach(() => (temporary = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  killLeftovers()
  rmSync(temporary, { recursive: true, force: true })
})

interface Fault {
  readonly kind: string
  readonly variant: string
  readonly moment: string
  readonly step: number
  readonly milliseconds: number
  readonly rank: number
  readonly engine: string
}

const anyMoment = ['start', 'before', 'inside', 'timer']
const kinds: Readonly<
  Record<string, { variants: readonly string[]; moments?: readonly string[] }>
> = {
  throw: { variants: ['throw'] },
  reject: { variants: ['reject'] },
  exit: { variants: ['exit'] },
  signal: { variants: ['SIGKILL', 'SIGSEGV', 'SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGTERM'] },
  'out of memory': { variants: ['oom'] },
  hang: { variants: ['loop', 'SIGSTOP', 'promise'] },
  'missing collective': { variants: ['missing'], moments: ['before', 'inside'] },
}

/** A linear congruential generator (Numerical Recipes): the same faults for the same seed. */
function makeRandom(state: number): (below: number) => number {
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

function makeFaults(): Fault[] {
  const random = makeRandom(seed)
  const pick = <T>(list: readonly T[]): T => list[random(list.length)]!
  return Array.from({ length: count }, (_, i) => {
    const kind = Object.keys(kinds)[i % Object.keys(kinds).length]!
    const variant = pick(kinds[kind]!.variants)
    const moments = kinds[kind]!.moments ?? anyMoment
    return {
      kind,
      variant,
      // A timer cannot keep the script from going on by a promise.
      moment: pick(variant === 'promise' ? moments.slice(0, 3) : moments),
      step: random(6),
      milliseconds: random(100),
      rank: random(RANKS),
      engine: pick(['worker', 'worker', 'inline']),
    }
  })
}

interface Named {
  readonly rank: number
  readonly ended: string
  readonly records?: string
}

/** Runs a job with the fault, and returns what its report names. */
async function run(fault: Fault): Promise<Named | undefined> {
  const args = ['--nproc', String(RANKS), '--grace', '0.5', '--log-format', 'json', 'faulty.mjs']
  const { stdout } = await tsrun(args, {
    env: {
      FAULT_KIND: fault.variant,
      FAULT_RANK: String(fault.rank),
      FAULT_MOMENT: fault.moment,
      FAULT_STEP: String(fault.step),
      FAULT_MS: String(fault.milliseconds),
      TSRUN_ENGINE: fault.engine,
      TMPDIR: temporary,
      ...(fault.variant === 'oom' ? { NODE_OPTIONS: '--max-old-space-size=40' } : {}),
    },
  })
  const line = stdout.split('\n').find((text) => text.includes('"event":"failure"'))
  return line === undefined ? undefined : (JSON.parse(line) as Named)
}

it('the report names the rank with the fault, whatever the fault and the moment', async () => {
  const rows = [['fault', 'moment', 'engine', 'rank', 'named', 'first cause']]
  const wrong: string[] = []
  for (const fault of makeFaults()) {
    const named = await run(fault)
    const moment = { timer: `${fault.milliseconds} ms`, start: 'start' }[fault.moment]
    const row = [
      fault.kind === fault.variant ? fault.kind : `${fault.kind}: ${fault.variant}`,
      moment ?? `${fault.moment} step ${fault.step}`,
      fault.engine,
      String(fault.rank),
      String(named?.rank ?? 'none'),
      named?.ended ?? '',
    ]
    rows.push(row)
    if (named?.rank !== fault.rank) wrong.push(row.join(' '))
  }
  const right = `culprit named correctly: ${count - wrong.length} of ${count} (seed ${seed})`
  process.stdout.write(`${formatTable(rows).join('\n')}\n${right}\n`)
  expect(wrong).toEqual([])
  // Nothing but records is left in the temporary folder.
  expect(readdirSync(temporary).filter((name) => !name.startsWith('tsrun-flight-'))).toEqual([])
})
