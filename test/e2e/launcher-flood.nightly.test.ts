import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { jest } from '@jest/globals'
import { killLeftovers, Run, until } from '../launcher/support/tsrun.ts'

jest.setTimeout(300_000)

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-flood-'))
})
afterEach(() => {
  killLeftovers()
  rmSync(folder, { recursive: true })
})

const RANKS = 64
/** 10 MB in a second, of all ranks together, for some seconds. */
const [INTERVALS, COUNT] = [6, 78]
const EXPECTED = INTERVALS * COUNT
/** The most memory that the launcher may ever have, in MB. */
const MEMORY = 200

/** The peak of the memory of a process in MB, as it was when it was last there. */
async function watchPeak(run: Run): Promise<number> {
  let peak = 0
  while (run.child.exitCode === null && run.child.signalCode === null) {
    peak = Math.max(peak, peakOf(run.pid))
    await pause(50)
  }
  return peak
}

function peakOf(pid: number): number {
  try {
    const [, kib] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
    return (1024 * Number(kib ?? 0)) / 1e6
  } catch {
    return 0
  }
}

/** What is wrong with the lines of a rank; undefined if they are all there, whole and in order. */
function faultIn(lines: readonly string[]): string | undefined {
  const pad = '.'.repeat(2000)
  const wrong = lines.findIndex((line, number) => line !== `line ${number} ${pad}`)
  if (wrong >= 0) return `line ${wrong} is ${lines[wrong]!.slice(0, 80)}`
  return lines.length === EXPECTED ? undefined : `${lines.length} lines instead of ${EXPECTED}`
}

function linesOf(text: string): string[] {
  return text.endsWith('\n') ? text.slice(0, -1).split('\n') : [`no end: ${text.slice(-80)}`]
}

/** By rank; what has no prefix belongs to rank -1. */
function byRank(output: string): Map<number, string[]> {
  const found = new Map<number, string[]>()
  for (const line of linesOf(output)) {
    const [prefix, rank = '-1'] = /^\[rank (\d+)\] +/.exec(line) ?? ['']
    const lines = found.get(Number(rank)) ?? []
    lines.push(line.slice(prefix.length))
    found.set(Number(rank), lines)
  }
  return found
}

it.each(['that reads', 'that stops reading for a while'])(
  'the launcher loses no line of 64 ranks that write 10 MB/s to a reader %s, in bounded memory',
  async (reader) => {
    const job = ['--nproc', String(RANKS), '--no-summary', '--log-dir', folder]
    const program = ['--no-python', 'bash', 'numbered-lines.sh', String(INTERVALS), String(COUNT)]
    const run = new Run([...job, ...program])
    const watching = watchPeak(run)
    if (reader !== 'that reads') {
      await until(() => run.stdout !== '', 'the first line')
      run.child.stdout!.pause()
      // All ranks wait in a write then, and the launcher for the reader.
      await run.idle()
      run.child.stdout!.resume()
    }
    const { code, stdout, stderr } = await run.finished
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const output = byRank(stdout)
    const ranks = Array.from({ length: RANKS }, (_, rank) => rank)
    expect([...output.keys()].toSorted((a, b) => a - b)).toEqual(ranks)
    const attempt = join(folder, readdirSync(folder)[0]!, 'attempt_0')
    for (const rank of ranks) {
      const kept = linesOf(readFileSync(join(attempt, String(rank), 'stdout.log'), 'utf8'))
      expect({
        rank,
        shown: faultIn(output.get(rank)!),
        kept: faultIn(kept),
      }).toEqual({ rank, shown: undefined, kept: undefined })
    }
    const peak = await watching
    expect(peak).toBeGreaterThan(0)
    expect(peak).toBeLessThan(MEMORY)
  },
)
