import { createRequire } from 'node:module'
import { join } from 'node:path'
import { version } from './package.ts'
import { resolveFrom } from './job/code/script.ts'

/** The optional package with the dashboard, metrics and the viewer of traces. */
export const OBSERVE = '@tsrun/observe'

/**
 * Finds the package beside tsrun or in the user's project, preferably of the same version as tsrun.
 *
 * @returns undefined if the package is not installed
 */
export function locateObserve(
  cwd: string,
): { readonly path: string; readonly version: string; readonly fits: boolean } | undefined {
  const found = [import.meta.url, join(cwd, 'any.js')].flatMap((place) => {
    const path = resolveFrom([place], OBSERVE)
    if (path === undefined) return []
    const manifest = createRequire(path)(`${OBSERVE}/package.json`) as { readonly version: string }
    return [{ path, version: manifest.version, fits: manifest.version === version }]
  })
  return found.find(({ fits }) => fits) ?? found[0]
}
