import { createRequire } from 'node:module'
import { join } from 'node:path'
import { version } from './package.ts'
import { resolveFrom } from './script.ts'

/** The optional package that shows jobs: the dashboard, metrics, and what is recorded in traces. */
export const OBSERVE = '@tsrun/observe'

/**
 * Where the package is, beside tsrun or in the project of the user: one of tsrun's version if there is one.
 *
 * @returns undefined when it is not installed
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
