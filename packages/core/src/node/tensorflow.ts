import { createRequire } from 'node:module'
import { delimiter, join } from 'node:path'
import { anything, choice, list, object, record, text, where } from '../schema.ts'
import type { Environment } from '../variables.ts'
import { readManifest, tsrunHome } from './manifest.ts'

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

/** Checks only the fields that decide which code is loaded. */
const checked = where<TensorFlowManifest>(
  object({
    format: choice(1),
    package: text,
    folder: text,
    libraryFolders: list(text),
    request: record(anything()),
  }).is,
  'a manifest',
)

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
  return readManifest('tensorflow', checked, env)
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
