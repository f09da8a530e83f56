import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { tsrError } from '@tsrun/core'
import type { Line, StreamName } from './line.ts'

/** The two log files of a rank: its lines, without prefix or colour. */
export interface RankFiles {
  write(stream: StreamName, line: Line): void
  close(): void
}

/** Where the files of one life of a job lie. */
export function attemptDirectory(logDir: string, runId: string, restartCount: number): string {
  return join(logDir, runId, `attempt_${restartCount}`)
}

/**
 * Opens `<directory>/<rank>/{stdout,stderr}.log`. Writes are synchronous, so that the last line
 * before a crash is there. A disk that fills up ends the files, not the job: `onFailure` is told.
 *
 * @throws ERR_TSR_LOG_DIRECTORY
 */
export function openRankFiles(
  directory: string,
  rank: number,
  onFailure: (reason: string) => void,
): RankFiles {
  const own = join(directory, String(rank))
  const open = new Map<StreamName, number>()
  try {
    mkdirSync(own, { recursive: true })
    for (const stream of ['stdout', 'stderr'] as const) {
      open.set(stream, openSync(join(own, `${stream}.log`), 'w'))
    }
  } catch (cause) {
    const reason = (cause as Error).message
    throw tsrError('ERR_TSR_LOG_DIRECTORY', { directory, reason }, { cause })
  }
  const close = (): void => {
    for (const fd of open.values()) closeSync(fd)
    open.clear()
  }
  const write = (stream: StreamName, { text, end }: Line): void => {
    const fd = open.get(stream)
    if (fd === undefined) return
    try {
      writeSync(fd, stripVTControlCharacters(text) + end)
    } catch (error) {
      close()
      onFailure((error as Error).message)
    }
  }
  return { write, close }
}
