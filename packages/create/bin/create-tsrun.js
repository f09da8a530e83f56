#!/usr/bin/env node
// `npm create @tsrun [folder]` is `tsrun init [folder]`.
process.argv.splice(2, 0, 'init')
await import(new URL('bin/tsrun.js', import.meta.resolve('@tsrun/launcher/package.json')))
