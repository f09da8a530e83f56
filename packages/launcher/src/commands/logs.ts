import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate, setTimeout as pause } from 'node:timers/promises'
import { flag, formatRankList } from '@tsrun/core'
import { readPrefix, type LogFormat } from '../args/output-options.ts'
import { integerFrom, logFormat, rankList, usageError } from '../args/readers.ts'
import { readLauncherLog } from '../job/detach.ts'
import { isRunning, reread } from '../job/run-records.ts'
import type { StreamName } from '../logs/lines.ts'
import { OLDER, streamNames } from '../logs/log-files.ts'
import { attemptsIn, RankReader, ranksIn } from '../logs/log-reader.ts'
import { wantsColour } from '../logs/presenter.ts'
import { RecordedOutput } from '../logs/recorded-output.ts'
import { declareCommand, type CommandContext } from './context.ts'
import { findLogs, noLogs, type FoundLogs } from './find-logs.ts'

/** `tsrun logs [run]` */
export const command = declareCommand({
  usage:
    '$0 logs [run]\n\nShows what the ranks of a run have written, of all ranks in the order of time, as the job ' +
    'showed it: while it runs, or afterwards. It reads the files of --log-dir, or those that tsrun keeps of the last five jobs.',
  argument: {
    description:
      'the id of a run as tsrun ps shows it, or its beginning; or a folder: that of --log-dir, of a ' +
      'run, of an attempt, of a rank; default: the newest run of this host',
  },
  flags: {
    rank: {
      aliases: ['ranks'],
      reads: rankList('ranks and ranges of ranks, as in 0,2-3'),
      description: 'only these ranks, for example 0,2-3',
    },
    stream: { choices: streamNames, description: 'only this stream' },
    tail: {
      aliases: ['n'],
      reads: integerFrom(0, 1_000_000_000, 'a number of lines'),
      description: 'only so many lines at the end',
    },
    follow: { aliases: ['f'], reads: flag, description: 'show what comes, until the job ends' },
    'log-format': {
      reads: logFormat,
      fallback: 'pretty',
      description: `${logFormat.expected}, as for a job`,
    },
    'log-prefix': { description: 'the prefix of lines, as for a job; default: that of the job' },
  },
  run: async ({ rank: ranks, stream, tail, follow, ...lines }, context, [run]) => {
    const prefix = lines['log-prefix']
    const chosen = {
      ...{ ranks, tail, isFollowing: follow === true, format: lines['log-format'] },
      streams: stream === undefined ? streamNames : [stream],
      prefix: prefix && readPrefix({ value: prefix, source: '--log-prefix' }),
    }
    const found = findLogs(run, context.env, context.cwd)
    await new LogCommand({ ...chosen, ...found }, context).run()
  },
})

interface Request extends FoundLogs {
  readonly ranks: ReadonlySet<number> | undefined
  readonly streams: readonly StreamName[]
  readonly tail: number | undefined
  readonly isFollowing: boolean
  readonly format: LogFormat
  readonly prefix: string | undefined
}

/** Milliseconds between polls for new lines. */
const LOOK = 100
/** Pieces of output between checks for Ctrl-C. */
const TURN = 100
/**
 * Milliseconds after which no new attempt follows. The launcher pauses up to ten seconds between them.
 */
const LONGEST_PAUSE = 12_000

class LogCommand {
  readonly #request: Request
  readonly #context: CommandContext
  /** The last lines so far, while `--tail` waits for the end of the logs. */
  #kept: { readonly stream: StreamName; readonly text: string }[] | undefined
  /** When all known ranks had ended. */
  #endedAt: number | undefined

  constructor(request: Request, context: CommandContext) {
    this.#request = request
    this.#context = context
    this.#kept = request.tail === undefined ? undefined : []
  }

  /** @throws ERR_TSR_NO_LOGS, ERR_TSR_USAGE */
  async run(): Promise<void> {
    const { folder } = this.#request
    while (this.#attempts().length === 0 && !this.#isOver([])) await this.#wait()
    let next = this.#attempts()[0]
    if (next === undefined && !this.#isStopped) {
      throw noLogs(folder, 'there are no files of ranks in this folder')
    }
    while (next !== undefined && !this.#isStopped) {
      const attempt: number = next
      await this.#showAttempt(attempt)
      next = this.#attempts().find((one) => one > attempt)
      if (next !== undefined) this.#write('stderr', `tsrun: attempt ${next}\n`)
    }
    this.#showKept()
    const said = readLauncherLog(folder)
    const { streams, format } = this.#request
    if (streams.includes('stderr')) {
      this.#context.console.print('stderr', said, format === 'raw')
    }
    this.#context.interrupts.stop.throwIfAborted()
  }

  get #isStopped(): boolean {
    return this.#context.interrupts.stop.aborted
  }

  #attempts(): number[] {
    const { folder, attempt } = this.#request
    return attemptsIn(folder).filter((one) => attempt === undefined || one === attempt)
  }

  #pathOf(attempt: number): string {
    return join(this.#request.folder, `attempt_${attempt}`)
  }

  async #showAttempt(attempt: number): Promise<void> {
    const { format, prefix } = this.#request
    const { env } = this.#context
    const readers: RankReader[] = []
    const output = new RecordedOutput({
      ...{ format, prefix },
      worldSize: () => 1 + Math.max(...ranksIn(this.#pathOf(attempt))),
      colour: {
        stdout: wantsColour(process.stdout, env),
        stderr: wantsColour(process.stderr, env),
      },
      write: (stream, text) => {
        this.#write(stream, text)
      },
    })
    try {
      for (;;) {
        const isLast = this.#attempts().at(-1) === attempt
        // If all ranks have ended, the next poll reads the rest of their output.
        const isOver = !isLast || this.#isOver(readers)
        this.#findRanks(attempt, readers)
        const isNew = await this.#showNew(readers, output)
        if (isOver || this.#isStopped) break
        if (!isNew) output.flush()
        this.#showKept()
        await this.#wait()
      }
      this.#checkRanks(readers)
      for (const reader of readers) {
        for (const piece of reader.rest()) output.take(reader, piece)
      }
      output.end(readers)
    } finally {
      for (const reader of readers) reader.close()
    }
  }

  /** Shows all new output in order of time. @returns whether any output was new */
  async #showNew(readers: readonly RankReader[], output: RecordedOutput): Promise<boolean> {
    const { console } = this.#context
    for (let count = 0; ; count++) {
      let first: RankReader | undefined
      let time = Infinity
      for (const reader of readers) {
        const own = reader.peek()
        if (own === undefined || own >= time) continue
        first = reader
        time = own
      }
      if (first === undefined || this.#isStopped) return count > 0
      output.take(first, first.next())
      // Apply back-pressure from a slow reader.
      if (console.isWaiting()) await console.flush()
      else if (count % TURN === 0) await setImmediate()
    }
  }

  #findRanks(attempt: number, readers: RankReader[]): void {
    const { ranks, rank, streams, tail } = this.#request
    const path = this.#pathOf(attempt)
    for (const found of ranksIn(path)) {
      if (ranks?.has(found) === false || (rank !== undefined && rank !== found)) continue
      const folder = join(path, String(found))
      const last = readers.findLast((reader) => reader.rank === found)
      if (last?.isReplaced === false) continue
      const older = join(folder, OLDER)
      if (last === undefined && existsSync(older)) {
        readers.push(new RankReader(older, found, streams, tail))
      }
      readers.push(new RankReader(folder, found, streams, last === undefined ? tail : undefined))
    }
    for (const old of readers.filter(
      (reader) => reader.isReplaced && reader.peek() === undefined,
    )) {
      old.close()
      readers.splice(readers.indexOf(old), 1)
    }
    readers.sort((a, b) => a.rank - b.rank)
  }

  /** @throws ERR_TSR_USAGE if none of the requested ranks exists */
  #checkRanks(readers: readonly RankReader[]): void {
    const { ranks } = this.#request
    if (readers.length > 0 || ranks === undefined || this.#isStopped) return
    const all = this.#attempts().flatMap((one) => ranksIn(this.#pathOf(one)))
    if (all.some((rank) => ranks.has(rank)) || all.length === 0) return
    const known = formatRankList(new Set(all))
    throw usageError(`--rank names ${formatRankList(ranks)}, but the files are of ${known}`)
  }

  /** Whether the run writes no more output, or the user has stopped the command. */
  #isOver(readers: readonly RankReader[]): boolean {
    const { isFollowing, record } = this.#request
    if (!isFollowing || this.#isStopped) return true
    if (record !== undefined) return !isRunning(reread(record, this.#context.env))
    // A run without a record belongs to another host, so only its log files show its end.
    const haveEnded = readers.length > 0 && readers.every(({ hasEnded }) => hasEnded)
    this.#endedAt = haveEnded ? (this.#endedAt ?? performance.now()) : undefined
    return this.#endedAt !== undefined && performance.now() - this.#endedAt > LONGEST_PAUSE
  }

  async #wait(): Promise<void> {
    const { stop } = this.#context.interrupts
    await pause(LOOK, undefined, { signal: stop }).catch(() => undefined)
  }

  #write(stream: StreamName, text: string): void {
    if (text === '') return
    if (this.#kept === undefined) {
      this.#context.console.write(stream, text)
      return
    }
    for (const line of text.match(/[^\n]*\n|[^\n]+$/g) ?? [])
      this.#kept.push({ stream, text: line })
    const tail = this.#request.tail!
    if (this.#kept.length > 2 * tail + TURN) this.#kept = last(this.#kept, tail)
  }

  #showKept(): void {
    const kept = last(this.#kept ?? [], this.#request.tail ?? 0)
    this.#kept = undefined
    for (const { stream, text } of kept) this.#context.console.write(stream, text)
  }
}

function last<T>(items: readonly T[], count: number): T[] {
  return count === 0 ? [] : items.slice(-count)
}
