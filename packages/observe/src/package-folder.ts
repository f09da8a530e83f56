/** The folder of this package. It is one level above the sources and above the bundle: keep this file at the top. */
export const packageFolder = new URL('../', import.meta.url)
