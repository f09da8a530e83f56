import { choice, object, text, type Of } from '../schema.ts'
import { readManifest, type Environment } from './manifest.ts'

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
