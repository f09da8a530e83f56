export { runCommand } from './command.ts'
export type { OutputLine, SpawnOptions } from './library/options.ts'
export { spawn } from './library/spawn.ts'
