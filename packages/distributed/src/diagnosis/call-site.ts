import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { packageFolder } from '../package-folder.ts'

/** This package, compiled or not. */
const own = fileURLToPath(packageFolder)
/** Frames above a call of a group that may be ours. */
const DEEPEST = 30

/** Where this package was called from: `train.ts:12:3`, relative to the current directory. */
export function callSite(): string | undefined {
  const before = Error.stackTraceLimit
  Error.stackTraceLimit = DEEPEST
  const { stack = '' } = new Error()
  Error.stackTraceLimit = before
  for (const line of stack.split('\n').slice(1)) {
    const match = /\(?((?:file:\/\/)?\/[^()]*?):(\d+):(\d+)\)?$/.exec(line)
    if (match === null) continue
    const [, place = '', row = '', column = ''] = match
    const path = place.startsWith('file:') ? fileURLToPath(place) : place
    if (path.startsWith(own)) continue
    const near = relative(process.cwd(), path)
    return `${near.startsWith('..') ? path : near}:${row}:${column}`
  }
  return undefined
}
