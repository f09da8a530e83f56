import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import { moduleAddress, tsrError } from '@tsrun/core'

const require = createRequire(moduleAddress(import.meta.url))
const manifest = '@tsrun/launcher/package.json'

/** The folder of this package, with its programs in `dist`. */
export const packageFolder = new URL('./', pathToFileURL(pathOfManifest()))

const facts = require(manifest) as Readonly<Record<'version' | 'homepage', string>>

/** The version of tsrun. */
export const version = facts.version

export const homepage = facts.homepage

/** The oldest Node that tsrun supports. */
export const OLDEST_NODE = '20.19'

/** Whether a version of Node, with or without `v`, is older than `OLDEST_NODE`. */
export function isOldNode(nodeVersion: string): boolean {
  const [major = 0, minor = 0] = nodeVersion.replace(/^v/, '').split('.').map(Number)
  return major < 20 || (major === 20 && minor < 19)
}

function pathOfManifest(): string {
  try {
    return require.resolve(manifest)
  } catch (cause) {
    throw tsrError('ERR_TSR_BUILT_FILE', { path: manifest }, { cause })
  }
}
