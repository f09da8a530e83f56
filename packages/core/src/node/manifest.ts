import { createRequire } from 'node:module'
import { homedir } from 'node:os'
import { delimiter, dirname, join, resolve } from 'node:path'
import { codeOf, messageOf, tsrError } from '../errors/tsr-error.ts'
import { distrustOf, makeFolders, readFileText, replaceFile } from '../host/files.ts'
import {
  anything,
  choice,
  list,
  object,
  parseJson,
  record,
  text,
  where,
  type Environment,
  type Of,
  type Schema,
} from '../schema.ts'

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
function readManifest<T>(name: string, of: Schema<T>, env: Environment): T | undefined {
  const path = pathOf(name, env)
  const unusable = (problem: string) => tsrError('ERR_TSR_SETUP_MANIFEST', { name, path, problem })
  let json: string
  try {
    json = readFileText(path)
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(codeOf(error))) return undefined
    throw unusable(messageOf(error))
  }
  const distrust = distrustOf(tsrunHome(env)) ?? distrustOf(dirname(path))
  if (distrust !== undefined) throw unusable(`${distrust}; name another folder in TSRUN_HOME`)
  const manifest = parseJson(json, of)
  if (manifest === undefined) throw unusable('it is damaged, or another version of tsrun wrote it')
  return manifest
}

/** Replaces the manifest of `tsrun setup NAME` atomically. */
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

function pathOf(name: string, env: Environment) {
  return join(tsrunHome(env), name, 'manifest.json')
}

const blasManifest = object({
  /** Version of this record. Other versions are rejected. */
  format: choice(1),
  /** The absolute path of the library. */
  library: text,
  /** The version of the wheel. */
  version: text,
  /** The kernels that the library selected in its test, for example `SkylakeX`. */
  kernels: text.optional(),
  /** Platform and architecture of the library, for example `linux-x64`. */
  system: text,
  /** Time of the set-up, in ISO 8601. */
  createdAt: text,
})

/** Describes what `tsrun setup blas` installed. `@tsrun/doctor` and the backend wasm read it. */
export type BlasManifest = Of<typeof blasManifest>

/**
 * Reads the manifest, or returns undefined when no BLAS has been set up.
 *
 * @throws ERR_TSR_SETUP_MANIFEST when the manifest exists but cannot be used
 */
export function readBlasManifest(env: Environment = process.env): BlasManifest | undefined {
  return readManifest('blas', blasManifest, env)
}

/** The file names under which systems install OpenBLAS, MKL, BLIS and Accelerate. */
const systemLibraries: readonly string[] =
  process.platform === 'darwin'
    ? ['/System/Library/Frameworks/Accelerate.framework/Accelerate']
    : process.platform === 'win32'
      ? ['libopenblas.dll', 'mkl_rt.2.dll']
      : ['libopenblas.so.0', 'libmkl_rt.so.2', 'libblis.so.4']

/**
 * Returns the BLAS libraries to try, the preferred one first, each with its origin. If TSRUN_BLAS is set,
 * the only library is the one it names; `off` means none. By default, the libraries are: the library of
 * `tsrun setup blas`, libraries in npm packages beside this package or the working directory, and system
 * libraries.
 *
 * @param report - called with the reason if the manifest of `tsrun setup blas` cannot be used
 */
export function blasLibraries(
  report: (problem: string) => void,
  env: Environment = process.env,
): readonly (readonly [library: string, origin: string])[] {
  const named = env['TSRUN_BLAS'] ?? ''
  if (named !== '') return named === 'off' ? [] : [[named, 'TSRUN_BLAS']]
  const found: [string, string][] = []
  try {
    const manifest = readBlasManifest(env)
    if (manifest !== undefined) found.push([manifest.library, 'tsrun setup blas'])
  } catch (error) {
    report(messageOf(error))
  }
  for (const libc of ['', '-musl']) {
    const name = `@tsrun/blas-${thisSystem}${libc}`
    try {
      const paths = [import.meta.dirname, process.cwd()]
      found.push([createRequire(import.meta.url).resolve(name, { paths }), name])
    } catch {
      // The package is not installed.
    }
  }
  return [...found, ...systemLibraries.map((library) => [library, 'the system'] as const)]
}

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

/** Checks only the fields that decide which code is loaded. */
const tensorflowManifest = where<TensorFlowManifest>(
  object({
    format: choice(1),
    package: text,
    folder: text,
    libraryFolders: list(text),
    request: record(anything()),
  }).is,
  'a manifest',
)

/**
 * Reads the manifest, or returns undefined when TensorFlow has not been set up.
 *
 * @throws ERR_TSR_SETUP_MANIFEST when the manifest exists but cannot be used
 */
export function readTensorFlowManifest(
  env: Environment = process.env,
): TensorFlowManifest | undefined {
  return readManifest('tensorflow', tensorflowManifest, env)
}

/** LD_LIBRARY_PATH of a process that loads this TensorFlow: the manifest's folders come first. */
export function libraryPath(
  { libraryFolders }: Pick<TensorFlowManifest, 'libraryFolders'>,
  env: Environment = process.env,
): string {
  return [...libraryFolders, env['LD_LIBRARY_PATH'] ?? ''].filter(Boolean).join(delimiter)
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
