import { runCommand } from './commands/command-line.ts'

// Exit explicitly: Node would keep running while any process has the output pipe of a rank open.
process.exit(await runCommand(process.argv.slice(2)))
