export { parseChaosPlan } from '../../../packages/launcher/src/job/chaos/plan-file.ts'
export {
  deviceEnvironment,
  type Devices,
  findDevices,
} from '../../../packages/launcher/src/job/placement/devices.ts'
export { gpusOfHost } from '../../../packages/launcher/src/job/placement/devices.ts'
export { announceSilence } from '../../../packages/launcher/src/job/agent.ts'
export {
  type Job,
  type JobContext,
  makeRunIdentity,
} from '../../../packages/launcher/src/job/job.ts'
export { refuseModuleSyntax } from '../../../packages/launcher/src/job/code/module-format.ts'
export {
  cpuQuota,
  describeLimits,
  memoryLimit,
  type ReadSystemFile,
  usableCores,
} from '../../../packages/launcher/src/job/placement/limits.ts'
export { coresOf } from '../../../packages/launcher/src/job/placement/numa.ts'
export { OLDEST_NODE, version } from '../../../packages/launcher/src/package.ts'
export { describePlan, planAttempt } from '../../../packages/launcher/src/job/plan.ts'
export { keptLogs, readRuns, recordRun } from '../../../packages/launcher/src/job/run-records.ts'
export {
  findModule,
  findProgram,
  findScript,
  loaderArguments,
  type Script,
} from '../../../packages/launcher/src/job/code/script.ts'
export { areTerminated, settle } from '../../../packages/launcher/src/job/process/escalation.ts'
export { aborted } from '../../../packages/launcher/src/job/process/interrupts.ts'
export {
  computingShare,
  type RankUse,
} from '../../../packages/launcher/src/job/process/process-use.ts'
export { findUp, readSettings } from '../../../packages/launcher/src/rank/typescript/settings.ts'
