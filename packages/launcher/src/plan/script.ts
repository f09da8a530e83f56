import { existsSync, openSync, readSync, closeSync, statSync } from 'node:fs'
import { extname, resolve } from 'node:path'
import { tsrError } from '@tsrun/core'

export interface Script {
  /** Absolute. */
  readonly path: string
  readonly language: 'javascript' | 'typescript' | 'tsx'
}

const javascript = ['.js', '.mjs', '.cjs']
const typescript = ['.ts', '.mts', '.cts']
const jsx = ['.tsx', '.jsx']

/**
 * Finds the script and says what it is written in.
 *
 * @throws ERR_TSR_SCRIPT when it is missing, no file, or nothing that Node runs
 */
export function findScript(script: string, cwd: string): Script {
  const path = resolve(cwd, script)
  const status = statSync(path, { throwIfNoEntry: false })
  if (status === undefined) throw refuse(script, missing(path))
  if (status.isDirectory()) throw refuse(script, `it is a directory${alternative(path, '/index')}`)
  if (!status.isFile()) throw refuse(script, 'it is not a regular file')
  const extension = extname(path)
  if (javascript.includes(extension)) return { path, language: 'javascript' }
  if (typescript.includes(extension)) return { path, language: 'typescript' }
  if (jsx.includes(extension)) return { path, language: 'tsx' }
  if (extension === '' && hasNodeShebang(script, path)) return { path, language: 'javascript' }
  const kinds = [...javascript, ...typescript, '.tsx'].join(', ')
  throw refuse(script, `it is neither JavaScript nor TypeScript (expected ${kinds})`)
}

function missing(path: string): string {
  return `there is no file ${path}${alternative(path, '')}`
}

function alternative(path: string, suffix: string): string {
  const found = [...typescript, ...javascript].find((extension) =>
    existsSync(path + suffix + extension),
  )
  return found === undefined ? '' : `, but there is ${path}${suffix}${found}`
}

function hasNodeShebang(script: string, path: string): boolean {
  const head = new Uint8Array(80)
  try {
    const fd = openSync(path, 'r')
    readSync(fd, head)
    closeSync(fd)
  } catch (cause) {
    throw refuse(script, (cause as Error).message, cause)
  }
  return /^#!.*\bnode\b/.test(Buffer.from(head).toString('latin1').split('\n', 1)[0] ?? '')
}

function refuse(script: string, problem: string, cause?: unknown): Error {
  return tsrError('ERR_TSR_SCRIPT', { script, problem }, { cause })
}
