import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const require = createRequire(import.meta.url)
const manifest = '@tsrun/launcher/package.json'

/** The folder of this package: where its programs (dist) and the sources that `setup` compiles are. */
export const packageFolder = new URL('./', pathToFileURL(require.resolve(manifest)))

/** The version of tsrun. */
export const { version } = require(manifest) as { readonly version: string }
