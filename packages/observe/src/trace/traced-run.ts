import { readdirSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { tsrError } from '@tsrun/core'
import { spansFolder, type SpanFileHeader } from '@tsrun/distributed/record'
import { SpanFileReader } from './span-file-reader.ts'

/** The span files of one run. */
export interface TracedRun {
  readonly runId: string
  readonly lastAttempt: number
  /** A file for each rank of each attempt, in the order of attempts and ranks. */
  readonly files: readonly SpanFileReader[]
  /** Files that could not be read, and folders without files of the run. */
  readonly problems: readonly string[]
}

/**
 * Finds the files of a run in folders of `--trace`: one folder for each host, or a shared one.
 *
 * @param runId - default: the newest run
 * @param problems - receives why files could not be read
 * @returns undefined if there is no such run
 */
export function findTracedRun(
  directories: readonly string[],
  runId?: string,
  problems: string[] = [],
): TracedRun | undefined {
  const files: { readonly directory: string; readonly name: string; reader: SpanFileReader }[] = []
  for (const directory of directories) {
    for (const path of spanFiles(directory, runId)) {
      const name = join(basename(dirname(path)), basename(path))
      try {
        files.push({ directory, name, reader: new SpanFileReader(path) })
      } catch (error) {
        problems.push(`${path}: ${(error as Error).message}`)
      }
    }
  }
  const [newest] = files.map(({ reader }) => reader.header).sort((a, b) => b.time - a.time)
  if (newest === undefined) return undefined
  const ofRun = files.filter(({ reader }) => reader.header.runId === newest.runId)
  for (const directory of directories) {
    if (ofRun.some((file) => file.directory === directory)) continue
    problems.push(`${directory}: it has nothing of run ${newest.runId}`)
  }
  // Count a file once if it was copied between hosts.
  const own = [...new Map(ofRun.map(({ name, reader }) => [name, reader])).values()].sort(
    (a, b) => order(a.header) - order(b.header),
  )
  const lastAttempt = own.at(-1)!.header.restartCount
  return { runId: newest.runId, lastAttempt, files: own, problems }
}

/**
 * Finds a run like `findTracedRun`, in folders that a user has named.
 *
 * @param names - the folders as the user wrote them
 * @throws ERR_TSR_USAGE if there is no such run
 */
export function findTrace(
  directories: readonly string[],
  names: readonly string[],
  runId: string | undefined,
): TracedRun {
  let found: TracedRun | undefined
  const problems: string[] = []
  try {
    found = findTracedRun(directories, runId, problems)
  } catch (cause) {
    throw tsrError('ERR_TSR_USAGE', { problem: (cause as Error).message }, { cause })
  }
  if (found !== undefined) return found
  const what = runId === undefined ? 'no trace' : `no trace of a run ${runId}`
  const hint = problems[0] ?? 'tsrun --trace DIR writes one'
  const problem = `there is ${what} in ${names.join(', ')}; ${hint}`
  throw tsrError('ERR_TSR_USAGE', { problem })
}

const MOST_RANKS = 2 ** 24

function order({ restartCount, rank }: SpanFileHeader): number {
  return restartCount * MOST_RANKS + rank
}

function spanFiles(directory: string, runId: string | undefined): string[] {
  return folders(directory, runId).flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => name.endsWith('.spans'))
      .map((name) => join(folder, name)),
  )
}

function folders(directory: string, runId: string | undefined): string[] {
  try {
    return readdirSync(join(directory, 'spans'), { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && (runId === undefined || entry.name === runId))
      .map(({ name }) => spansFolder(directory, name))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}
