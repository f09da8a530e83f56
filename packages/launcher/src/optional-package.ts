import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { tsrError } from '@tsrun/core'
import { usageError } from './args/readers.ts'
import { resolveFrom } from './job/code/script.ts'
import { version } from './package.ts'

/**
 * Loads an optional package of tsrun from beside tsrun or from the user's project; undefined if it is
 * not installed. Takes one of the same version as tsrun, and refuses other versions.
 */
export async function findPackage(name: string, cwd: string): Promise<unknown> {
  const found = [import.meta.url, join(cwd, 'any.js')].flatMap((place) => {
    const path = resolveFrom([place], name)
    if (path === undefined) return []
    const manifest = createRequire(path)(`${name}/package.json`) as { readonly version: string }
    return [{ path, version: manifest.version }]
  })
  const chosen = found.find((one) => one.version === version) ?? found[0]
  if (chosen === undefined) return undefined
  if (chosen.version === version) return await import(pathToFileURL(chosen.path).href)
  throw usageError(
    `${name} is of version ${chosen.version} and tsrun of ${version}: npm install ${name}@${version}`,
  )
}

/** @param what - the feature that needs the package, for the error if it is not installed */
export async function loadPackage(name: string, what: string, cwd: string): Promise<unknown> {
  const exported = await findPackage(name, cwd)
  if (exported === undefined) throw tsrError('ERR_TSR_PACKAGE_MISSING', { what, package: name })
  return exported
}
