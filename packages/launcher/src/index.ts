export type { ChaosOptions, FaultKind, FaultOptions } from './chaos/plan.ts'
export { runCommand } from './commands/command-line.ts'
export type { OutputLine, SpawnOptions } from './spawn-api/options.ts'
export { spawn } from './spawn-api/spawn.ts'
