#!/usr/bin/env node
import module from 'node:module'

const [major, minor] = process.versions.node.split('.').map(Number)
if (major < 20 || (major === 20 && minor < 19)) {
  console.error(`tsrun: Node ${process.version} is too old. Install Node 20.19 or later.`)
  process.exit(2)
}

// Otherwise SIGUSR1 opens Node's debugger, to every user of this machine.
process.on('SIGUSR1', () => undefined)

// Node 22.1 and later: the compiled code of the launcher is kept for the next start.
// eslint-disable-next-line n/no-unsupported-features/node-builtins -- only where it is there
module.enableCompileCache?.()
await import('../dist/main.js')
