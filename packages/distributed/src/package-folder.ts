import { moduleAddress } from '@tsrun/core'

/**
 * The folder of this package, for files that are not imported. Source files and the bundles in dist
 * both lie one level below that folder. This module must therefore stay at the top of src.
 */
export const packageFolder = new URL('../', moduleAddress(import.meta.url))
