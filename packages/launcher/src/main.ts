import { runCommand } from './commands/command-line.ts'

// Not process.exitCode: a stranger who still holds a rank's pipe must not keep us alive.
process.exit(await runCommand(process.argv.slice(2)))
