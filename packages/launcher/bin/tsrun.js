#!/usr/bin/env node
import { lstatSync, mkdirSync } from 'node:fs'
import module from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const [major, minor] = process.versions.node.split('.').map(Number)
if (major < 20 || (major === 20 && minor < 19)) {
  console.error(`tsrun: Node ${process.version} is too old. Install Node 20.19 or later.`)
  process.exit(2)
}

// Otherwise SIGUSR1 opens Node's debugger, to every user of this machine.
process.on('SIGUSR1', () => undefined)

// Node 22.1 and later: the compiled code of the launcher is kept for the next start.
// eslint-disable-next-line n/no-unsupported-features/node-builtins -- only where it is there
const { enableCompileCache } = module
if (enableCompileCache !== undefined) {
  const isSafe =
    process.env.NODE_COMPILE_CACHE !== undefined ||
    isOwnFolder(join(tmpdir(), 'node-compile-cache'))
  // Ranks inherit the variable.
  if (!isSafe) process.env.NODE_DISABLE_COMPILE_CACHE = '1'
  enableCompileCache()
}
await import('../dist/main.js')

/**
 * Makes the folder if necessary, because Node would try forever to make one below /proc. A folder of
 * another user may contain code of that user.
 */
function isOwnFolder(path) {
  try {
    mkdirSync(path, { mode: 0o700 })
  } catch ({ code }) {
    if (code !== 'EEXIST') return false
  }
  const status = lstatSync(path)
  const own = process.geteuid?.()
  if (own === undefined) return status.isDirectory()
  // The private group of a user has the number of the user.
  const writable = status.gid === own ? 0o002 : 0o022
  return status.isDirectory() && status.uid === own && (status.mode & writable) === 0
}
