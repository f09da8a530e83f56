import { runBench } from './commands.mjs'

process.exitCode = await runBench(process.argv.slice(2))
