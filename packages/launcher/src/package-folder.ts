/**
 * Folder of this package, for the files that are not imported. The sources lie one level below it,
 * and so do the bundles in dist, whichever this module has gone into: it has to stay at the top.
 */
export const packageFolder = new URL('../', import.meta.url)
