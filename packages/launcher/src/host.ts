/*
 * What a package with commands of tsrun needs, as `@tsrun/doctor` does: how commands are declared, what
 * this host has, and how other hosts are reached. This entry is unstable: any release may change it, so
 * such a package depends on one exact version.
 */
export type { Flags, ValuesOf } from './args/flag.ts'
export { portRange, usageError } from './args/readers.ts'
export { type Command, type CommandContext, declareCommand } from './commands/context.ts'
export { resolveFrom } from './job/code/script.ts'
export {
  deviceEnvironment,
  type Devices,
  findDevices,
  findGpus,
  gpusOfHost,
  type HostGpus,
  linesOf,
} from './job/placement/devices.ts'
export {
  cpuQuota,
  memoryLimit,
  processLimits,
  readAvailable,
  readSystemFile,
  softLimit,
  usableCores,
} from './job/placement/limits.ts'
export { isAlive } from './job/process/process-use.ts'
export { isOldNode, OLDEST_NODE, version } from './package.ts'
export {
  chooseHosts,
  commandIn,
  hostFlags,
  lastLineOf,
  openConnection,
  type Reach,
  readHosts,
  readSsh,
  type RemoteHost,
  whyNotOn,
} from './remote/hosts.ts'
export { runProgram, type RunOptions } from './run-program.ts'
