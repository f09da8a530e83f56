import { runCommand } from './commands/command-line.ts'

// Not process.exitCode: another process that still holds the pipe of a rank must not keep this one running.
process.exit(await runCommand(process.argv.slice(2)))
