import { homedir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { tsrError } from '../errors/tsr-error.ts'
import { makeFolders, readFileText } from '../host/files.ts'
import { distrustOf, replaceFile } from '../host/private-files.ts'
import type { Schema } from '../schema.ts'
import type { Environment } from '../variables.ts'

/*
 * `tsrun setup NAME` installs into the folder NAME of `tsrunHome`, and describes the result in a
 * manifest there.
 */

/** Platform and architecture of this process, written as in a manifest. */
export const thisSystem = `${process.platform}-${process.arch}`

/** The folder for tsrun's files: TSRUN_HOME if set, otherwise `tsrun` in the user's cache folder. */
export function tsrunHome(env: Environment = process.env): string {
  const home = env['TSRUN_HOME'] ?? ''
  if (home !== '') return resolve(home)
  const cache = env['XDG_CACHE_HOME'] ?? ''
  return join(cache === '' ? join(homedir(), '.cache') : cache, 'tsrun')
}

/** @throws ERR_TSR_SETUP_MANIFEST when the manifest exists but cannot be used */
export function readManifest<T>(name: string, of: Schema<T>, env: Environment): T | undefined {
  const path = pathOf(name, env)
  const unusable = (problem: string): Error =>
    tsrError('ERR_TSR_SETUP_MANIFEST', { name, path, problem })
  let text: string
  try {
    text = readFileText(path)
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) {
      return undefined
    }
    throw unusable((error as Error).message)
  }
  const distrust = distrustOf(tsrunHome(env)) ?? distrustOf(dirname(path))
  if (distrust !== undefined) throw unusable(`${distrust}; name another folder in TSRUN_HOME`)
  let manifest: unknown
  try {
    manifest = JSON.parse(text)
  } catch {
    throw unusable('it is not valid JSON')
  }
  if (!of.is(manifest)) throw unusable('another version of tsrun wrote it')
  return manifest
}

/**
 * Replaces the manifest of `tsrun setup NAME` atomically: a reader sees either the old manifest or the
 * new one.
 */
export function writeManifest(
  name: string,
  manifest: object,
  env: Environment = process.env,
): void {
  const path = pathOf(name, env)
  makeFolders(dirname(path))
  // Make the file readable for all users, because root may run the set-up for them.
  replaceFile(path, `${JSON.stringify(manifest, null, 2)}\n`, 0o666)
}

function pathOf(name: string, env: Environment): string {
  return join(tsrunHome(env), name, 'manifest.json')
}
