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
export { checkRanks, type LogFormat } from '../../../packages/launcher/src/args/output-options.ts'
export { toProtection } from '../../../packages/launcher/src/args/protection-options.ts'
export {
  checkNamedRanks,
  needsFolder,
  type RankOptions,
  toRankOptions,
} from '../../../packages/launcher/src/args/rank-options.ts'
export { parseRankList, splitWords } from '../../../packages/launcher/src/args/readers.ts'
export {
  completeSettings,
  describeEnvironment,
  readSettings,
  variablesOf,
} from '../../../packages/launcher/src/args/settings.ts'
