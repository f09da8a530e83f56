export type { ChaosOptions, FaultKind, FaultOptions } from './job/chaos/plan.ts'
export { runCommand } from './commands/command-line.ts'
export type { OutputLine, SpawnOptions } from './spawn/options.ts'
export { spawn, type SpawnedJob } from './spawn/spawn.ts'
