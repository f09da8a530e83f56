import { createRequire } from 'node:module'

/**
 * Gives `node:util` back the functions that Node 23 took away and that @tensorflow/tfjs-node 4.22
 * still calls; does nothing where they are. To be called before that package is loaded.
 */
export function restoreLegacyUtil(): void {
  // The module's own object: the namespace of an import cannot be written to.
  const util = createRequire(import.meta.url)('node:util') as Record<string, unknown>
  util['isNullOrUndefined'] ??= (value: unknown) => value === null || value === undefined
  util['isUndefined'] ??= (value: unknown) => value === undefined
  util['isArray'] ??= Array.isArray
}
