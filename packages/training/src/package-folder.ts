import { moduleAddress } from '@tsrun/core'

/**
 * The folder of this package, for files that are not imported. It is one level above this module in the
 * sources, and one level above each bundle in dist: keep this file at the top of the sources.
 */
export const packageFolder = new URL('../', moduleAddress(import.meta.url))
