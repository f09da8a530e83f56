import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { tsrError } from '@tsrun/core'
import { usageError } from './args/readers.ts'
import { resolveFrom } from './job/code/script.ts'
import { version } from './package.ts'

/**
 * Finds an optional package of tsrun beside tsrun or in the user's project, preferably of the same version
 * as tsrun.
 *
 * @param name - for example `@tsrun/observe`
 * @returns undefined if the package is not installed
 */
function locatePackage(
  name: string,
  cwd: string,
): { readonly path: string; readonly version: string; readonly fits: boolean } | undefined {
  const found = [import.meta.url, join(cwd, 'any.js')].flatMap((place) => {
    const path = resolveFrom([place], name)
    if (path === undefined) return []
    const manifest = createRequire(path)(`${name}/package.json`) as { readonly version: string }
    return [{ path, version: manifest.version, fits: manifest.version === version }]
  })
  return found.find(({ fits }) => fits) ?? found[0]
}

/**
 * Loads an optional package of tsrun.
 *
 * @returns its exports; undefined if the package is not installed
 * @throws ERR_TSR_USAGE if its version differs from tsrun's
 */
export async function findPackage(name: string, cwd: string): Promise<unknown> {
  const found = locatePackage(name, cwd)
  if (found === undefined) return undefined
  if (!found.fits) {
    throw usageError(
      `${name} is of version ${found.version} and tsrun of ${version}: npm install ${name}@${version}`,
    )
  }
  return await import(pathToFileURL(found.path).href)
}

/**
 * Loads an optional package of tsrun.
 *
 * @param what - the feature that needs the package
 * @returns its exports
 * @throws ERR_TSR_PACKAGE_MISSING if the package is not installed, ERR_TSR_USAGE
 */
export async function loadPackage(name: string, what: string, cwd: string): Promise<unknown> {
  const exported = await findPackage(name, cwd)
  if (exported === undefined) throw tsrError('ERR_TSR_PACKAGE_MISSING', { what, package: name })
  return exported
}
