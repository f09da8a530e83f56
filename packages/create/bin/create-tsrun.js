#!/usr/bin/env node
// `npm create @tsrun [folder]` is `tsrun init [folder]`.
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'

// Not import.meta.resolve, which old versions of Node lack: tsrun says that they are too old.
const manifest = createRequire(import.meta.url).resolve('@tsrun/launcher/package.json')
process.argv.splice(2, 0, 'init')
await import(pathToFileURL(join(dirname(manifest), 'bin/tsrun.js')).href)
