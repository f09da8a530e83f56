import { realpathSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import { findTracedRun, type TracedRun } from '@tsrun/telemetry'
import { usageError } from '../args/read-setting.ts'

/** The paths of folders that a command line names, each once. @throws ERR_TSR_USAGE */
export function pathsOf(folders: readonly string[], cwd: string): string[] {
  const paths = folders.map((folder) => {
    const path = resolve(cwd, folder)
    if (statSync(path, { throwIfNoEntry: false })?.isDirectory() === true) return path
    throw usageError(`${folder} is not a folder`)
  })
  const places = paths.map((path) => realpathSync(path))
  return paths.filter((_, i) => places.indexOf(places[i]!) === i)
}

/**
 * What the ranks of a run have written into folders of `--trace`.
 *
 * @param names - of the folders, as they were given
 * @param run - default: the newest run
 * @throws ERR_TSR_USAGE
 */
export function findTrace(
  paths: readonly string[],
  names: readonly string[],
  run: string | undefined,
): TracedRun {
  let found: TracedRun | undefined
  try {
    found = findTracedRun(paths, run)
  } catch (error) {
    throw usageError((error as Error).message, error)
  }
  if (found !== undefined) return found
  const what = run === undefined ? 'no trace' : `no trace of a run ${run}`
  throw usageError(`there is ${what} in ${names.join(', ')}; tsrun --trace DIR writes one`)
}
