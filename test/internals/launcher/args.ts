export { flagTable, type FlagValues } from '../../../packages/launcher/src/args/flags.ts'
export {
  type Capacity,
  type JobOptions,
  toJobOptions,
} from '../../../packages/launcher/src/args/job-options.ts'
export {
  fillTemplate,
  type RankFacts,
  templateProblem,
} from '../../../packages/launcher/src/args/log-prefix.ts'
export {
  checkRanks,
  type LogFormat,
  parseRankList,
} from '../../../packages/launcher/src/args/output-options.ts'
export { readProtectionOptions } from '../../../packages/launcher/src/args/protection-options.ts'
export {
  checkNamedRanks,
  needsFolder,
  type RankOptions,
  readRankOptions,
  splitWords,
} from '../../../packages/launcher/src/args/rank-options.ts'
export {
  completeSettings,
  describeEnvironment,
  variablesOf,
} from '../../../packages/launcher/src/args/settings.ts'
