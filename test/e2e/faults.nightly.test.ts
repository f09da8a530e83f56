import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { formatTable, seededRandom } from '@tsrun/core'
import { killLeftovers, tsrun, type Finished } from '../launcher/support/tsrun.ts'

/** `npm run test:chaos` runs 40 of them, and `npm run faults` 200. */
const count = Number(process.env['FAULTS'] ?? 40)
const seed = Number(process.env['FAULTS_SEED'] ?? 1)
/** Only these, separated by commas. */
const wanted = process.env['FAULTS_KINDS']?.split(',')
const RANKS = 8
/** Seconds within which a job must have ended: its start, its steps, the fault, and a time-out of 5 s. */
const BOUND = 30

jest.setTimeout(60_000 + count * 1000 * BOUND)
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

/** What becomes of the job. */
type Outcome = 'the rank is named' | 'a rank has lost another' | 'it continues'

interface Kind {
  /** What the script does to itself; without it, the kit does the kind of this name. */
  readonly variants?: readonly string[]
  readonly moments?: readonly string[]
  readonly options?: object
  readonly outcome?: Outcome
}

const anyMoment = ['start', 'before', 'inside', 'timer']
const kinds: Readonly<Record<string, Kind>> = {
  throw: { variants: ['throw'] },
  reject: { variants: ['reject'] },
  exit: { variants: ['exit'] },
  signal: { variants: ['SIGKILL', 'SIGSEGV', 'SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGTERM'] },
  'out of memory': { variants: ['oom'] },
  hang: { variants: ['loop', 'SIGSTOP', 'promise'] },
  'missing collective': { variants: ['missing'], moments: ['before', 'inside'] },
  'kit: kill': {},
  'kit: throw': {},
  'kit: reject': {},
  'kit: exit': {},
  'kit: memory': {},
  'kit: descriptors': {},
  'kit: disk': {},
  'kit: stop': { options: { forSeconds: 0.5 }, outcome: 'it continues' },
  'kit: busy': { options: { forSeconds: 0.5 }, outcome: 'it continues' },
  'kit: clock': { options: { bySeconds: -86_400 }, outcome: 'it continues' },
  'kit: slow': { options: { forSeconds: 0.5 }, outcome: 'it continues' },
  'kit: address-space': {},
  'kit: disconnect': { outcome: 'a rank has lost another' },
  'kit: half-close': { outcome: 'a rank has lost another' },
  'kit: corrupt': { outcome: 'a rank has lost another' },
  'kit: drop': { outcome: 'a rank has lost another' },
  'kit: truncate': { outcome: 'a rank has lost another' },
  'kit: delay': { options: { milliseconds: 20, forSeconds: 0.5 }, outcome: 'it continues' },
}

function makeFaults(): Fault[] {
  const random = seededRandom(seed)
  const below = (limit: number): number => Math.floor(random() * limit)
  const pick = <T>(list: readonly T[]): T => list[below(list.length)]!
  const names = Object.keys(kinds).filter((kind) => wanted?.includes(kind) !== false)
  return Array.from({ length: count }, (_, i) => {
    const kind = names[i % names.length]!
    const { variants = ['kit'], moments = anyMoment } = kinds[kind]!
    const variant = pick(variants)
    return {
      kind,
      variant,
      // A timer cannot keep the script from continuing by a promise.
      moment:
        variant === 'kit' ? 'kit' : pick(variant === 'promise' ? moments.slice(0, 3) : moments),
      step: below(6),
      milliseconds: below(100),
      rank: below(RANKS),
      engine: pick(['worker', 'worker', 'inline']),
    }
  })
}

interface Named {
  readonly rank: number
  readonly ended: string
}

interface Result extends Finished {
  readonly named: Named | undefined
  readonly seconds: number
  /** How many lines each rank has written for certain. */
  readonly written: readonly number[]
}

/** Runs a job with the fault. */
async function run(fault: Fault): Promise<Result> {
  const lines = join(temporary, 'lines')
  writeFileSync(lines, new Uint8Array(8 * RANKS))
  const args = ['--nproc', String(RANKS), '--grace', '0.5', '--log-format', 'json']
  if (fault.variant === 'kit') {
    const plan = join(temporary, 'plan.json')
    const { options } = kinds[fault.kind]!
    const kind = fault.kind.replace('kit: ', '')
    const when = { rank: fault.rank, step: 5 * fault.step }
    writeFileSync(plan, JSON.stringify({ faults: [{ kind, ...when, ...options }] }))
    args.push('--chaos', plan)
  }
  const { outcome } = kinds[fault.kind]!
  const isShort = ['oom', 'kit'].includes(fault.variant) && fault.kind.includes('memory')
  const start = performance.now()
  const finished = await tsrun([...args, 'faulty.mjs'], {
    env: {
      FAULT_KIND: fault.variant,
      FAULT_RANK: String(fault.rank),
      FAULT_MOMENT: fault.moment,
      FAULT_STEP: String(fault.step),
      FAULT_MS: String(fault.milliseconds),
      FAULT_LINES: lines,
      TSRUN_ENGINE: fault.engine,
      TMPDIR: temporary,
      ...(outcome === 'a rank has lost another' ? { TSRUN_TRANSPORT: 'tcp' } : {}),
      ...(fault.kind === 'kit: address-space' ? { FAULT_MAPS: '1' } : {}),
      ...(isShort ? { NODE_OPTIONS: '--max-old-space-size=40' } : {}),
    },
  })
  const seconds = (performance.now() - start) / 1000
  const line = finished.stdout.split('\n').find((text) => text.includes('"event":"failure"'))
  const counts = readFileSync(lines)
  return {
    ...finished,
    ...{ named: line === undefined ? undefined : (JSON.parse(line) as Named), seconds },
    written: Array.from({ length: RANKS }, (_, rank) => counts.readDoubleLE(8 * rank)),
  }
}

/** What is not as it should be after a job. */
function problemsOf(fault: Fault, { code, stdout, named, seconds, written }: Result): string[] {
  const { outcome = 'the rank is named' } = kinds[fault.kind]!
  const continues = outcome === 'it continues'
  const problems = []
  if (seconds > BOUND) problems.push(`it took ${seconds.toFixed(0)} s`)
  if (continues !== (code === 0)) problems.push(`exit code ${code}`)
  if (continues !== (named === undefined)) problems.push('a report')
  if (outcome === 'the rank is named' && named?.rank !== fault.rank) problems.push('culprit')
  if (outcome === 'a rank has lost another' && !stdout.includes('ERR_TSR_PEER_LOST')) {
    problems.push('no lost peer')
  }
  for (const [rank, least] of written.entries()) {
    const found = linesOf(stdout, rank)
    const isTorn = found.some((line, i) => !new RegExp(`^line ${i} x*\\.$`).test(line))
    if (found.length < least) problems.push(`rank ${rank}: ${found.length} of ${least} lines`)
    if (isTorn) problems.push(`rank ${rank}: torn or lost lines`)
  }
  const left = livingProcesses()
  if (left.length > 0) problems.push(`processes left: ${left.join(', ')}`)
  const expected = /^(tsrun-flight-.*|lines|plan\.json|rank-\d+)$/
  const files = readdirSync(temporary).filter((name) => !expected.test(name))
  if (files.length > 0) problems.push(`files left: ${files.join(', ')}`)
  return problems
}

/** The numbered lines of a rank on the console. */
function linesOf(stdout: string, rank: number): string[] {
  return stdout
    .split('\n')
    .filter((text) => text.includes(`"rank":${rank},"stream":"stdout"`))
    .map((text) => (JSON.parse(text) as { readonly line: string }).line)
    .filter((text) => text.startsWith('line '))
}

/** Processes that a job has left: they have the temporary folder of this test in their environment. */
function livingProcesses(): string[] {
  return readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid)) return false
    const read = (name: string): string => {
      try {
        return readFileSync(`/proc/${pid}/${name}`, 'latin1')
      } catch {
        return ''
      }
    }
    const isMine = read('environ').includes(`TMPDIR=${temporary}`)
    return isMine && !/^State:\s+[ZX]/m.test(read('status'))
  })
}

it('after a fault at any moment, the job ends in time with a correct report and leaves nothing', async () => {
  const shared = readdirSync('/dev/shm')
  const rows = [['fault', 'moment', 'engine', 'rank', 'seconds', 'named', 'first cause', 'result']]
  const totals = new Map<string, { runs: number; right: number; longest: number }>()
  const wrong: string[] = []
  for (const fault of makeFaults()) {
    const result = await run(fault)
    const problems = problemsOf(fault, result)
    const moment = {
      timer: `${fault.milliseconds} ms`,
      start: 'start',
      kit: `step ${5 * fault.step}`,
    }[fault.moment]
    const row = [
      [fault.kind, 'kit'].includes(fault.variant) || fault.variant === fault.kind
        ? fault.kind
        : `${fault.kind}: ${fault.variant}`,
      moment ?? `${fault.moment} step ${fault.step}`,
      fault.engine,
      String(fault.rank),
      result.seconds.toFixed(1),
      String(result.named?.rank ?? 'none'),
      result.named?.ended ?? '',
      problems.length === 0 ? 'right' : problems.join('; '),
    ]
    rows.push(row)
    const total = totals.get(fault.kind) ?? { runs: 0, right: 0, longest: 0 }
    total.runs++
    if (problems.length === 0) total.right++
    else wrong.push(row.join(' '))
    total.longest = Math.max(total.longest, result.seconds)
    totals.set(fault.kind, total)
    // killed ranks of faults before must not fill the folder
    for (const name of readdirSync(temporary)) {
      rmSync(join(temporary, name), { recursive: true, force: true })
    }
  }
  const summary = [
    ['fault', 'runs', 'right', 'longest'],
    ...[...totals].map(([kind, { runs, right, longest }]) => [
      ...[kind, String(runs), String(right), `${longest.toFixed(1)} s`],
    ]),
  ]
  const right = `${count - wrong.length} of ${count} faults as they should be (seed ${seed})`
  process.stdout.write(
    `${formatTable(rows).join('\n')}\n\n${formatTable(summary).join('\n')}\n${right}\n`,
  )
  expect(wrong).toEqual([])
  // Open MPI keeps segments there while tests of it run beside this one.
  const isLeft = (name: string): boolean =>
    !shared.includes(name) && !name.startsWith('vader_segment.')
  expect(readdirSync('/dev/shm').filter(isLeft)).toEqual([])
})
