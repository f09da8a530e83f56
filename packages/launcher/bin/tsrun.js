#!/usr/bin/env node
import { mkdirSync } from 'node:fs'
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
  try {
    mkdirSync(join(tmpdir(), 'node-compile-cache'))
  } catch ({ code }) {
    // Below /proc, for example, Node would try to make this folder for ever, here and in the ranks.
    if (code !== 'EEXIST') process.env.NODE_DISABLE_COMPILE_CACHE = '1'
  }
  enableCompileCache()
}
await import('../dist/main.js')
