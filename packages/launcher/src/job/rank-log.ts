import { hostname } from 'node:os'
import { join } from 'node:path'
import type { RankFacts } from '../args/log-prefix.ts'
import { lineSplitter, StderrTail, type Line } from '../logs/lines.ts'
import { openFilteredFiles, openRankFiles, streamNames, type RankFiles } from '../logs/log-files.ts'
import { mergeTraces, TRACE_WINDOW, viewStream, type TraceMerger } from '../logs/traces.ts'
import type { Job, JobContext } from './job.ts'
import type { RankProcess } from './process/rank-process.ts'

/** @param directory - the folder of the log files of this attempt, if there are any */
export function openRankLogs(
  { output, placement: { role }, colour }: Job,
  { console, announcer, onLine }: JobContext,
  directory: string | undefined,
  attempt: Pick<RankFacts, 'worldSize' | 'generation' | 'node'> & { readonly runId: string },
) {
  const { format, prefix, destinations } = output
  const filtered = openFilteredFiles(directory, output.filters, (reason) => {
    announcer.say('log-failure', `the files of filtered lines end here: ${reason}`, {})
  })
  const opened: RankFiles[] = []
  const merger: TraceMerger = mergeTraces({
    colour: colour.stderr,
    write: (text) => {
      console.write('stderr', text)
    },
    clock: () => performance.now(),
    onHold: () => {
      setTimeout(() => {
        merger.flush(TRACE_WINDOW)
      }, TRACE_WINDOW + 1).unref()
    },
  })
  return {
    /** Opens the files of a rank before it starts: `<directory>/<rank>/{stdout,stderr}.log`. */
    open(rank: number, localRank: number): RankFiles | undefined {
      const goesTo = destinations?.(localRank)
      const streams = streamNames.filter((stream) => goesTo?.[stream].isWritten ?? true)
      if (directory === undefined || streams.length === 0) return undefined
      const fail = (reason: string): void => {
        // The user did not request the logs that are kept by default, so do not report their failure.
        if (output.directory === undefined) return
        announcer.say('log-failure', `the log files of rank ${rank} end here: ${reason}`, { rank })
      }
      try {
        const folder = join(directory, String(rank))
        const files = openRankFiles(folder, streams, fail, output.logMaxSize)
        opened.push(files)
        return files
      } catch (error) {
        if (output.directory === undefined) return undefined
        throw error
      }
    },

    /** Forwards the output of a rank to the console and to its log files. @returns its last lines */
    follow(process: RankProcess, localRank: number, files: RankFiles | undefined): StderrTail {
      const { rank, pid } = process
      const tail = new StderrTail()
      const place = { rank, localRank, role, host: hostname(), pid, startedAt: Date.now() }
      const facts = { ...place, ...attempt }
      files?.describe({ prefix: prefix ?? null, ...facts })
      process.onError = ({ silent, text }) => {
        if (silent) files?.write('stderr', [{ text, end: '\n' }])
      }
      const isShown =
        output.ranks?.has(rank) !== false && output.localRanks?.has(localRank) !== false
      for (const stream of streamNames) {
        const splitter = lineSplitter()
        const view =
          isShown && destinations?.(localRank)[stream].isShown !== false
            ? viewStream({ format, colour, prefix }, facts, stream, merger, (output, text) => {
                console.write(output, text)
              })
            : undefined
        const take = (lines: readonly Line[]): void => {
          if (lines.length === 0) return
          if (stream === 'stderr') for (const line of lines) tail.push(line)
          files?.write(stream, lines)
          filtered.write(stream, lines)
          if (onLine !== undefined) for (const line of lines) onLine(rank, stream, line)
          view?.take(lines)
        }
        process[stream]
          .on('data', (chunk: Buffer) => {
            take(splitter.push(chunk))
          })
          .on('end', () => {
            take(splitter.flush())
            view?.end()
          })
        if (view !== undefined) console.throttle(view.output, process[stream])
      }
      return tail
    },

    close(): void {
      merger.flush()
      for (const files of [...opened, filtered]) files.close()
    },
  }
}
