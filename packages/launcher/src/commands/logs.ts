import { join } from 'node:path'
import { setImmediate, setTimeout as pause } from 'node:timers/promises'
import { flag, formatRankList } from '@tsrun/core'
import type { LogFormat } from '../args/output-options.ts'
import { integerFrom, logFormat, rankList, usageError } from '../args/readers.ts'
import { readLauncherLog } from '../job/detach.ts'
import { isRunning, reread } from '../job/run-records.ts'
import type { StreamName } from '../logs/lines.ts'
import { attemptsIn, rankReader, ranksIn, type RankReader } from '../logs/log-reader.ts'
import { wantsColour } from '../logs/presenter.ts'
import { recordedOutput, type RecordedOutput } from '../logs/recorded-output.ts'
import { declareCommand, type CommandContext } from './context.ts'
import { findLogs, noLogs, type FoundLogs } from './find-logs.ts'

export const command = declareCommand({
  usage:
    '$0 logs [run]\n\nShows what the ranks of a run have written, of all ranks in the order of time, as the job ' +
    'showed it: while it runs, or afterwards. It reads the files of --log-dir, or those that tsrun keeps of the last five jobs.',
  argument: {
    description:
      'the id of a run as tsrun ps shows it, or its beginning; or a folder: that of --log-dir or of a ' +
      'run; default: the newest run of this host',
  },
  flags: {
    rank: {
      aliases: ['ranks'],
      reads: rankList,
      description: 'only these ranks, for example 0,2-3',
    },
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
  },
  run: async ({ rank: ranks, tail, follow: isFollowing = false, ...rest }, context, [run]) => {
    const found = findLogs(run, context.env, context.cwd)
    await showLogs({ ranks, tail, isFollowing, format: rest['log-format'], ...found }, context)
  },
})

interface Request extends FoundLogs {
  readonly ranks: ReadonlySet<number> | undefined
  readonly tail: number | undefined
  readonly isFollowing: boolean
  readonly format: LogFormat
}

/** Milliseconds between polls for new lines. */
const LOOK = 100
/** The number of output pieces to show between two checks for Ctrl-C. */
const TURN = 100

async function showLogs(request: Request, context: CommandContext): Promise<void> {
  const { folder, ranks, tail, format, record } = request
  const { env, console, interrupts } = context
  const { stop } = interrupts
  /** The lines read so far, while `--tail` waits for the end of the logs. */
  let kept: { readonly stream: StreamName; readonly text: string }[] | undefined =
    tail === undefined ? undefined : []
  const attempts = (): number[] => attemptsIn(folder)
  const pathOf = (attempt: number): string => join(folder, `attempt_${attempt}`)
  const wait = (): Promise<void> => pause(LOOK, undefined, { signal: stop }).catch(() => undefined)

  function write(stream: StreamName, text: string): void {
    if (kept === undefined) console.write(stream, text)
    else for (const line of text.match(/[^\n]*\n|[^\n]+$/g) ?? []) kept.push({ stream, text: line })
  }

  function showKept(): void {
    const lines = kept ?? []
    kept = undefined
    for (const { stream, text } of lines.slice(Math.max(0, lines.length - (tail ?? 0)))) {
      console.write(stream, text)
    }
  }

  /** Whether the run writes no more output, or the user has stopped the command. */
  function isOver(): boolean {
    if (!request.isFollowing || stop.aborted) return true
    // A run without a record belongs to another host, whose launcher may start a further attempt.
    return record !== undefined && !isRunning(reread(record, env))
  }

  function findRanks(attempt: number, readers: RankReader[]): void {
    for (const reader of readers) reader.openNew()
    for (const rank of ranksIn(pathOf(attempt))) {
      if (ranks?.has(rank) === false || readers.some((reader) => reader.rank === rank)) continue
      readers.push(rankReader(join(pathOf(attempt), String(rank)), rank, tail))
    }
    readers.sort((a, b) => a.rank - b.rank)
  }

  /** Shows all new output in order of time. @returns whether any output was new */
  async function showNew(readers: readonly RankReader[], output: RecordedOutput): Promise<boolean> {
    for (let count = 0; ; count++) {
      let first: RankReader | undefined
      let time = Infinity
      for (const reader of readers) {
        const own = reader.peek()
        if (own === undefined || own >= time) continue
        first = reader
        time = own
      }
      if (first === undefined || stop.aborted) return count > 0
      output.take(first, first.next())
      // Apply back-pressure from a slow reader.
      if (console.isWaiting()) await console.flush()
      else if (count % TURN === 0) await setImmediate()
    }
  }

  async function showAttempt(attempt: number): Promise<void> {
    const readers: RankReader[] = []
    const output = recordedOutput({
      format,
      write,
      colour: {
        stdout: wantsColour(process.stdout, env),
        stderr: wantsColour(process.stderr, env),
      },
    })
    try {
      for (;;) {
        const isLast = attempts().at(-1) === attempt
        // If the run is over, this poll reads the rest of its output.
        const hasEnded = !isLast || isOver()
        findRanks(attempt, readers)
        const isNew = await showNew(readers, output)
        if (hasEnded || stop.aborted) break
        if (!isNew) output.flush()
        showKept()
        await wait()
      }
      for (const reader of readers) {
        for (const piece of reader.rest()) output.take(reader, piece)
      }
      output.end()
    } finally {
      for (const reader of readers) reader.close()
    }
  }

  while (attempts().length === 0 && !isOver()) await wait()
  let next = attempts()[0]
  if (next === undefined && !stop.aborted) {
    throw noLogs(folder, 'there are no files of ranks in this folder')
  }
  while (next !== undefined && !stop.aborted) {
    const attempt: number = next
    await showAttempt(attempt)
    next = attempts().find((one) => one > attempt)
    if (next !== undefined) write('stderr', `tsrun: attempt ${next}\n`)
  }
  showKept()
  console.print('stderr', readLauncherLog(folder), format === 'raw')
  stop.throwIfAborted()
  if (ranks === undefined) return
  const known = attempts().flatMap((attempt) => ranksIn(pathOf(attempt)))
  if (known.some((rank) => ranks.has(rank))) return
  throw usageError(
    `--rank names ${formatRankList(ranks)}, but the files are of ${formatRankList(new Set(known))}`,
  )
}
