// Writes what the manifests of all packages have in common, from package.json of the repository: the
// version, the licence, the engines, and the addresses, whose only source is `repository.url`.
// npm run manifests
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/**
 * @typedef {Record<string, any>} Manifest
 */

export const root = fileURLToPath(new URL('..', import.meta.url))

/** The folders of the packages. */
export const folders = readdirSync(join(root, 'packages')).map((name) => `packages/${name}`)

/**
 * @param {string} folder from the root of the repository
 * @returns {Manifest}
 */
export function readManifest(folder = '.') {
  return JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8'))
}

/** The address of a repository as people open it: of `git+https://host/owner/name.git`. */
export function addressOf(/** @type {string} */ url) {
  return url.replace(/^git\+/, '').replace(/\.git$/, '')
}

/**
 * The manifest of a package with the common fields of the repository. All packages have the same version,
 * and depend on each other in exactly this version.
 *
 * @param {Manifest} manifest
 * @param {string} folder of the package
 * @param {Manifest} repository its package.json
 * @returns {Manifest}
 */
export function completed(manifest, folder, { version, license, engines, repository }) {
  const { name, description, keywords, ...rest } = manifest
  const address = addressOf(repository.url)
  const common = {
    homepage: `${address}/tree/main/${folder}#readme`,
    bugs: { url: `${address}/issues` },
    repository: { ...repository, directory: folder },
    license,
    engines,
    publishConfig: { access: 'public' },
  }
  const ours = (/** @type {Record<string, string>} */ dependencies) =>
    Object.fromEntries(
      Object.entries(dependencies).map(([each, range]) => [
        each,
        each.startsWith('@tsrun/') ? version : range,
      ]),
    )
  const dependencies = ['dependencies', 'peerDependencies']
    .filter((kind) => kind in manifest)
    .map((kind) => [kind, ours(manifest[kind])])
  return {
    ...{ name, version, description, keywords, ...common },
    ...{ ...rest, version, ...common, ...Object.fromEntries(dependencies) },
  }
}

/** @param {Manifest} manifest */
export function textOf(manifest) {
  return `${JSON.stringify(manifest, null, 2)}\n`
}

/**
 * Why npm would refuse to publish a package with a statement of its source (provenance).
 *
 * @param {Manifest} manifest
 * @param {string} address of the repository that publishes
 * @returns {string[]}
 */
export function refusals({ private: isPrivate, publishConfig, repository, keywords }, address) {
  const url = `git+${address}.git`
  return [
    ...(isPrivate ? ['it is private (EPRIVATE)'] : []),
    ...(publishConfig?.access === 'public'
      ? []
      : ['publishConfig.access is not "public", which provenance of a new package needs (EUSAGE)']),
    ...(repository?.type === 'git' ? [] : ['repository.type is not "git"']),
    ...(repository?.url === url
      ? []
      : [`repository.url is "${repository?.url ?? ''}", expected "${url}" (E422)`]),
    ...(keywords?.length > 0 ? [] : ['it has no keywords, by which npm search finds it']),
  ]
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const repository = readManifest()
  for (const folder of folders) {
    const manifest = completed(readManifest(folder), folder, repository)
    writeFileSync(join(root, folder, 'package.json'), textOf(manifest))
  }
}
