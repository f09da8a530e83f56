import { createRequire } from 'node:module'
import { messageOf } from '../errors/tsr-error.ts'
import { choice, object, text, type Of } from '../schema.ts'
import type { Environment } from '../variables.ts'
import { readManifest, thisSystem } from './manifest.ts'

const manifest = object({
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

/** Describes what `tsrun setup blas` installed. The launcher and the backend wasm read it. */
export type BlasManifest = Of<typeof manifest>

/**
 * Reads the manifest, or returns undefined when no BLAS has been set up.
 *
 * @throws ERR_TSR_SETUP_MANIFEST when the manifest exists but cannot be used
 */
export function readBlasManifest(env: Environment = process.env): BlasManifest | undefined {
  return readManifest('blas', manifest, env)
}

/** The file names under which systems install OpenBLAS, MKL, BLIS and Accelerate. */
const systemLibraries: readonly string[] =
  process.platform === 'darwin'
    ? ['/System/Library/Frameworks/Accelerate.framework/Accelerate']
    : process.platform === 'win32'
      ? ['libopenblas.dll', 'mkl_rt.2.dll']
      : ['libopenblas.so.0', 'libmkl_rt.so.2', 'libblis.so.4']

/**
 * Returns the libraries to try, the preferred one first, each with its origin: the one that TSRUN_BLAS names,
 * or none for `off`; else the one that `tsrun setup blas` installed, those of npm packages beside this one or
 * the working directory, and those of the system.
 *
 * @param report - called if it is unknown what `tsrun setup blas` installed
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
