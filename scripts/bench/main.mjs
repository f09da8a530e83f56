import { register } from 'tsx/esm/api'
import { runBench } from './commands.mjs'

// Node 20 does not run TypeScript by itself, and the simulation of `scale` is TypeScript.
register()
process.exitCode = await runBench(process.argv.slice(2))
