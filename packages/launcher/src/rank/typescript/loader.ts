/**
 * Runs TypeScript with tsx on a Node that does not strip types itself (before 22.18), and JSX on every
 * Node: `node --import` of this module, with the URL of tsx and the path of the script in its query.
 */
import { accessSync, constants } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname } from 'node:path'
import { findUp } from '../../protocol/loaders.ts'

const { env } = process
const { searchParams } = new URL(import.meta.url)
const tsx = searchParams.get('tsx')
if (tsx !== null) {
  if (!isWritable(tmpdir())) env['TSX_DISABLE_CACHE'] = '1'
  const chosen = env['TSX_TSCONFIG_PATH']
  // The current folder may be the root of several packages.
  const tsconfig = chosen ?? findUp('tsconfig.json', dirname(searchParams.get('script') ?? ''))
  if (tsconfig !== undefined) env['TSX_TSCONFIG_PATH'] = tsconfig
  const { noDeprecation = false } = process
  // Node 26 warns of the only way that Node 20 has.
  process.noDeprecation = true
  await import(tsx)
  process.noDeprecation = noDeprecation
  // Child processes may run scripts of other packages.
  if (chosen === undefined) delete env['TSX_TSCONFIG_PATH']
}

/** tsx fails, or hangs, if it cannot make the folder of its cache. */
function isWritable(folder: string): boolean {
  try {
    accessSync(`${folder}/.`, constants.W_OK)
    return true
  } catch {
    return false
  }
}
