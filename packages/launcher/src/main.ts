import { runCommand } from './commands/command-line.ts'

// Exit explicitly: Node would keep running while another process holds the pipe of a rank.
process.exit(await runCommand(process.argv.slice(2)))
