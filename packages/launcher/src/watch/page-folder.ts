import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { packageFolder } from '../job/package.ts'

/** Where the files of the dashboard's page are: this file may be part of a bundle. */
export function pageFolder(): string {
  const require = createRequire(packageFolder)
  return join(dirname(require.resolve('@tsrun/telemetry/package.json')), 'dist')
}
