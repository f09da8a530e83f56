// What becomes of the lines of many ranks that write much, and how much memory the launcher needs.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { RunError, tsrunLine } from '../programs.mjs'

const script = fileURLToPath(new URL('numbered-lines.sh', import.meta.url))
const pad = '.'.repeat(2000)

/** Milliseconds between two polls of the launcher's memory. */
const LOOK = 50

/**
 * Runs `ranks` ranks that write 10 MB in a second together.
 *
 * @param {number} ranks
 * @param {number} seconds
 * @returns {Promise<{ peakMB: number, wrong: number }>} the most memory of the launcher, and the number of
 *   lines that were lost, torn, or out of order within their rank
 */
export async function measureOutput(ranks, seconds) {
  const count = Math.ceil(10_000_000 / ranks / (pad.length + 8))
  const { command, args } = tsrunLine(ranks, 'bash', [script, String(seconds), String(count)])
  const [bin = '', ...job] = args
  const child = spawn(command, [bin, '--no-python', '--no-summary', ...job], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let peakMB = 0
  const timer = setInterval(() => {
    peakMB = Math.max(peakMB, readPeak(child.pid ?? 0))
  }, LOOK)
  const check = new LineCheck()
  child.stdout.on('data', (/** @type {Buffer} */ chunk) => {
    check.add(chunk.toString())
  })
  const [code] = await once(child, 'close')
  clearInterval(timer)
  if (code !== 0) throw new RunError(`tsrun --no-python bash ${script}: exit code ${code}`)
  return { peakMB, wrong: check.count(ranks, seconds * count) }
}

/** The number of the next line of each rank. */
class LineCheck {
  #rest = ''
  #wrong = 0
  /** @type {Map<number, number>} */
  #next = new Map()

  /** @param {string} text */
  add(text) {
    const lines = (this.#rest + text).split('\n')
    this.#rest = lines.pop() ?? ''
    for (const line of lines) this.#take(line)
  }

  /**
   * @param {number} ranks
   * @param {number} each - lines
   * @returns {number} of all lines those that are not right, and those that are missing
   */
  count(ranks, each) {
    const missing = Array.from({ length: ranks }, (_, rank) => each - (this.#next.get(rank) ?? 0))
    const rest = this.#rest === '' ? 0 : 1
    return this.#wrong + rest + missing.reduce((sum, lines) => sum + Math.abs(lines), 0)
  }

  /** @param {string} line */
  #take(line) {
    const [, rank, number, dots] = /^\[rank (\d+)\] +line (\d+) (\.+)$/.exec(line) ?? []
    const next = this.#next.get(Number(rank)) ?? 0
    if (dots === pad && Number(number) === next) this.#next.set(Number(rank), next + 1)
    else this.#wrong++
  }
}

/** @param {number} pid */
function readPeak(pid) {
  try {
    const [, kib] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
    return (1024 * Number(kib ?? 0)) / 1e6
  } catch {
    return 0
  }
}
