/**
 * Runs TypeScript on a Node that does not strip types itself (before 22.18): `node --import` of this
 * module, with the URL of tsx and the path of the script in its query. Modules that follow the rules of
 * newer Nodes take a cheap fast path. All others are left to tsx; see `hooks.ts`.
 */
import { accessSync, constants } from 'node:fs'
import { createRequire, register } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, extname } from 'node:path'
import type { LoaderData } from './hooks.ts'

const { searchParams } = new URL(import.meta.url)
const tsx = searchParams.get('tsx')
if (tsx !== null) {
  if (!isWritable(tmpdir())) process.env['TSX_DISABLE_CACHE'] = '1'
  const data: LoaderData = { tsx, folder: dirname(searchParams.get('script') ?? '') }
  const { noDeprecation = false } = process
  // Node 26 deprecates `register`, the only way to add hooks in Node 20.
  process.noDeprecation = true
  register('./typescript-hooks.js', import.meta.url, { data })
  process.noDeprecation = noDeprecation
  loadTsxOnRequire(createRequire(tsx))
}

/** tsx fails or hangs if the temporary folder, which holds its cache, cannot be written. */
function isWritable(folder: string): boolean {
  try {
    accessSync(`${folder}/.`, constants.W_OK)
    return true
  } catch {
    return false
  }
}

/** Loads tsx at the first `require` of TypeScript. tsx then replaces these functions. */
function loadTsxOnRequire(require: NodeJS.Require): void {
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- the only hook that `require` has in Node 20
  const { extensions } = require
  const loadTsx = (module: NodeJS.Module, filename: string): void => {
    for (const extension of added) Reflect.deleteProperty(extensions, extension)
    require('tsx/cjs')
    const load = added.includes(extname(filename)) ? extensions[extname(filename)] : undefined
    ;(load ?? extensions['.js'])(module, filename)
  }
  const added = ['.ts', '.cts', '.mts', '.tsx'].filter((name) => extensions[name] === undefined)
  for (const extension of added) extensions[extension] = loadTsx
}
