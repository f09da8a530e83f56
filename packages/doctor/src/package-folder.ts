/** The folder of this package, one level above sources and bundle. Keep this file at the top of src. */
export const packageFolder = new URL('../', import.meta.url)
