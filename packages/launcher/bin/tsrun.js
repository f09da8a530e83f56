#!/usr/bin/env node
import module from 'node:module'

// Node 22.1 and later: the compiled code of the launcher is kept for the next start.
// eslint-disable-next-line n/no-unsupported-features/node-builtins -- only where it is there
module.enableCompileCache?.()
await import('../dist/main.js')
