export { flagTable, type FlagValues } from '../../../packages/launcher/src/args/flags.ts'
export { remarksOn } from '../../../packages/launcher/src/args/hints.ts'
export {
  type Capacity,
  checkRanks,
  type JobOptions,
  type ProgramOptions,
  toJobOptions,
  toProgram,
  toProtection,
} from '../../../packages/launcher/src/args/job-options.ts'
export {
  fillTemplate,
  type RankFacts,
  templateProblem,
} from '../../../packages/launcher/src/args/log-prefix.ts'
export type { LogFormat } from '../../../packages/launcher/src/args/output-options.ts'
export { parseRankList, splitWords } from '../../../packages/launcher/src/args/readers.ts'
export {
  completeSettings,
  describeEnvironment,
  readSettings,
  variablesOf,
} from '../../../packages/launcher/src/args/settings.ts'
