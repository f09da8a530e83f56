export { parseChaosPlan } from '../../../packages/launcher/src/chaos/plan-file.ts'
export {
  deviceEnvironment,
  type Devices,
  findDevices,
} from '../../../packages/launcher/src/job/devices.ts'
export {
  type Job,
  type JobContext,
  makeRunIdentity,
} from '../../../packages/launcher/src/job/job.ts'
export { refuseModuleSyntax } from '../../../packages/launcher/src/job/module-format.ts'
export { coresOf, type ReadSystemFile } from '../../../packages/launcher/src/job/numa.ts'
export { version } from '../../../packages/launcher/src/job/package.ts'
export {
  describePlan,
  describePlanAsJson,
  planAttempt,
} from '../../../packages/launcher/src/job/plan.ts'
export { readRuns, recordRun } from '../../../packages/launcher/src/job/run-records.ts'
export {
  findModule,
  findProgram,
  findScript,
  loaderArguments,
  type Script,
} from '../../../packages/launcher/src/job/script.ts'
export { computingShare, type RankUse } from '../../../packages/launcher/src/processes/rank-use.ts'
export { readSettings } from '../../../packages/launcher/src/typescript/settings.ts'
