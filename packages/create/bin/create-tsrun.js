#!/usr/bin/env node
// `npm create @tsrun [folder]` is `tsrun init [folder]`.
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'

// Old versions of Node lack import.meta.resolve. tsrun says that they are too old.
const require = createRequire(import.meta.url)
const manifest = require.resolve('@tsrun/launcher/package.json')
process.argv.splice(2, 0, 'init')
await import(pathToFileURL(join(dirname(manifest), 'bin/tsrun.js')).href)
