import { runCommand } from './commands/command-line.ts'

// process.exitCode would keep this process running while another process holds a rank's pipe.
process.exit(await runCommand(process.argv.slice(2)))
