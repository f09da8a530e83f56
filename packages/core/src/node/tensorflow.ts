import { createRequire } from 'node:module'
import { homedir } from 'node:os'
import { delimiter, dirname, join, resolve } from 'node:path'
import { tsrError } from '../errors/tsr-error.ts'
import { makeFolders, readFileText } from '../host/files.ts'
import { distrustOf, replaceFile } from '../host/private-files.ts'

/** Describes what `tsrun setup tensorflow` installed. The launcher and the tensor backend read it. */
export interface TensorFlowManifest {
  /** Version of this record. Other versions are rejected. */
  readonly format: 1
  readonly request: TensorFlowRequest
  readonly package: '@tensorflow/tfjs-node' | '@tensorflow/tfjs-node-gpu'
  readonly packageVersion: string
  /** Version of the TensorFlow C library. */
  readonly tensorflowVersion: string
  /** The folder whose node_modules contains the package. */
  readonly folder: string
  /** Folders to add to the ranks' LD_LIBRARY_PATH. */
  readonly libraryFolders: readonly string[]
  /** Revision of tsrun's patch of the binding; undefined for the unpatched binding and in old records. */
  readonly bindingRevision?: number
  /**
   * True if the binding has tsrun's kernels for small layers; otherwise TensorFlow's slower operations
   * compute them. Undefined in old records.
   */
  readonly kernels?: boolean
  /** Devices that the set-up found in its final test: `CPU`, or the names of the GPUs. */
  readonly devices: readonly string[]
  /** Human-readable versions of the build tools. */
  readonly tools: Readonly<Record<string, string>>
  /** Platform and architecture that the binding was compiled for, for example `linux-x64`. */
  readonly system: string
  /** Time of the set-up, in ISO 8601. */
  readonly createdAt: string
}

/** The flags given to `tsrun setup tensorflow`, with absolute paths. */
export interface TensorFlowRequest {
  readonly gpu: boolean
  readonly official: boolean
  readonly wheel: string | null
  readonly python: string | null
}

type Environment = Readonly<Record<string, string | undefined>>

/** Platform and architecture of this process, written as in the manifest. */
export const thisSystem = `${process.platform}-${process.arch}`

/** The folder for tsrun's files: TSRUN_HOME if set, otherwise `tsrun` in the user's cache folder. */
export function tsrunHome(env: Environment = process.env): string {
  const home = env['TSRUN_HOME'] ?? ''
  if (home !== '') return resolve(home)
  const cache = env['XDG_CACHE_HOME'] ?? ''
  return join(cache === '' ? join(homedir(), '.cache') : cache, 'tsrun')
}

/** The folder in which TensorFlow is installed. */
export function tensorflowHome(env: Environment = process.env): string {
  return join(tsrunHome(env), 'tensorflow')
}

/**
 * Reads the manifest, or returns undefined when TensorFlow has not been set up.
 *
 * @throws ERR_TSR_SETUP_MANIFEST when the manifest exists but cannot be used
 */
export function readTensorFlowManifest(
  env: Environment = process.env,
): TensorFlowManifest | undefined {
  const path = manifestPath(env)
  let text: string
  try {
    text = readFileText(path)
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) {
      return undefined
    }
    throw unreadable(path, (error as Error).message)
  }
  const distrust = distrustOf(tsrunHome(env)) ?? distrustOf(tensorflowHome(env))
  if (distrust !== undefined) {
    throw tsrError('ERR_TSR_SETUP_MANIFEST', {
      path,
      problem: `${distrust}; name another folder in TSRUN_HOME`,
    })
  }
  let manifest: unknown
  try {
    manifest = JSON.parse(text)
  } catch {
    throw unreadable(path, 'it is not valid JSON')
  }
  if (!isManifest(manifest)) throw unreadable(path, 'another version of tsrun wrote it')
  return manifest
}

/**
 * Returns LD_LIBRARY_PATH for a process that loads this TensorFlow: the manifest's folders first,
 * then the existing ones.
 */
export function libraryPath(
  { libraryFolders }: Pick<TensorFlowManifest, 'libraryFolders'>,
  env: Environment = process.env,
): string {
  return [...libraryFolders, env['LD_LIBRARY_PATH'] ?? ''].filter(Boolean).join(delimiter)
}

/** Replaces the manifest atomically: a reader sees either the old manifest or the new one. */
export function writeTensorFlowManifest(
  manifest: TensorFlowManifest,
  env: Environment = process.env,
): void {
  const path = manifestPath(env)
  makeFolders(dirname(path))
  // Make the file readable for all users, because root may install TensorFlow for them.
  replaceFile(path, `${JSON.stringify(manifest, null, 2)}\n`, 0o666)
}

function manifestPath(env: Environment): string {
  return join(tensorflowHome(env), 'manifest.json')
}

function isManifest(value: unknown): value is TensorFlowManifest {
  if (typeof value !== 'object' || value === null) return false
  const {
    format,
    package: name,
    folder,
    libraryFolders,
    request,
  } = value as Partial<Record<keyof TensorFlowManifest, unknown>>
  return (
    format === 1 &&
    typeof name === 'string' &&
    typeof folder === 'string' &&
    typeof request === 'object' &&
    Array.isArray(libraryFolders)
  )
}

function unreadable(path: string, problem: string): Error {
  return tsrError('ERR_TSR_SETUP_MANIFEST', { path, problem })
}

/**
 * Restores the functions of `node:util` that Node 23 removed and @tensorflow/tfjs-node 4.22 still
 * calls. Call it before loading that package. Existing functions stay.
 */
export function restoreLegacyUtil(): void {
  // `require` returns the mutable object; an import namespace is read-only.
  const util = createRequire(import.meta.url)('node:util') as Record<string, unknown>
  util['isNullOrUndefined'] ??= (value: unknown) => value === null || value === undefined
  util['isUndefined'] ??= (value: unknown) => value === undefined
  util['isArray'] ??= Array.isArray
}

/** True if CUDA_VISIBLE_DEVICES hides all GPUs: empty, or the index -1 (CUDA programming guide). */
export function gpusAreHidden(env: Environment = process.env): boolean {
  const visible = env['CUDA_VISIBLE_DEVICES']
  return visible === '' || visible === '-1'
}
