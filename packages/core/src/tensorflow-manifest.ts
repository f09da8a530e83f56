import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { delimiter, dirname, join, resolve } from 'node:path'
import { tsrError } from './errors/tsr-error.ts'

/** What `tsrun setup tensorflow` has set up; the launcher and the tensor backend read it. */
export interface TensorFlowManifest {
  /** Of this file; another one is not understood. */
  readonly format: 1
  /** What was asked for. */
  readonly request: TensorFlowRequest
  readonly package: '@tensorflow/tfjs-node' | '@tensorflow/tfjs-node-gpu'
  readonly packageVersion: string
  /** That of TensorFlow's own library. */
  readonly tensorflowVersion: string
  /** The folder whose node_modules holds the package. */
  readonly folder: string
  /** For LD_LIBRARY_PATH of the ranks. */
  readonly libraryFolders: readonly string[]
  /** Of what tsrun adds to the binding; absent where that is the package's own, or older. */
  readonly bindingRevision?: number
  /**
   * Whether the binding has tsrun's kernels for small layers; without them TensorFlow's own operations
   * compute those, slower. Absent in manifests of before, where nobody knows.
   */
  readonly kernels?: boolean
  /** What the proof computed on: `CPU`, or the names of the GPUs. */
  readonly devices: readonly string[]
  /** What it was made with, for people. */
  readonly tools: Readonly<Record<string, string>>
  /** The binding is machine code: of this system only, as in `linux-x64`. */
  readonly system: string
  /** ISO 8601. */
  readonly createdAt: string
}

/** The flags of `tsrun setup tensorflow`, paths made absolute. */
export interface TensorFlowRequest {
  readonly gpu: boolean
  readonly official: boolean
  readonly wheel: string | null
  readonly python: string | null
}

type Environment = Readonly<Record<string, string | undefined>>

/** As in `linux-x64`. */
export const thisSystem = `${process.platform}-${process.arch}`

/** Where TensorFlow is set up: below TSRUN_HOME, else below the user's cache folder. */
export function tensorflowHome(env: Environment = process.env): string {
  const home = env['TSRUN_HOME'] ?? ''
  if (home !== '') return join(resolve(home), 'tensorflow')
  const cache = env['XDG_CACHE_HOME'] ?? ''
  return join(cache === '' ? join(homedir(), '.cache') : cache, 'tsrun', 'tensorflow')
}

/**
 * The manifest of the set-up, undefined when nothing is set up.
 *
 * @throws ERR_TSR_SETUP_MANIFEST when there is one that cannot be understood
 */
export function readTensorFlowManifest(
  env: Environment = process.env,
): TensorFlowManifest | undefined {
  const path = manifestPath(env)
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) {
      return undefined
    }
    throw unreadable(path, (error as Error).message)
  }
  let manifest: unknown
  try {
    manifest = JSON.parse(text)
  } catch {
    throw unreadable(path, 'it is no JSON')
  }
  if (!isManifest(manifest)) throw unreadable(path, 'another version of tsrun wrote it')
  return manifest
}

/** LD_LIBRARY_PATH for a process that loads the set-up: its folders, then those that `env` names. */
export function libraryPath(
  { libraryFolders }: Pick<TensorFlowManifest, 'libraryFolders'>,
  env: Environment = process.env,
): string {
  return [...libraryFolders, env['LD_LIBRARY_PATH'] ?? ''].filter(Boolean).join(delimiter)
}

/** Replaces the manifest at once: readers see the old one or the new one. */
export function writeTensorFlowManifest(
  manifest: TensorFlowManifest,
  env: Environment = process.env,
): void {
  const path = manifestPath(env)
  const draft = `${path}.${process.pid}`
  mkdirSync(dirname(path), { recursive: true })
  try {
    writeFileSync(draft, `${JSON.stringify(manifest, null, 2)}\n`)
    renameSync(draft, path)
  } catch (error) {
    rmSync(draft, { force: true })
    throw error
  }
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
