export { flagTable, type FlagValues } from '../../../packages/launcher/src/args/flags.ts'
export { remarksOn } from '../../../packages/launcher/src/args/hints.ts'
export {
  checkRanks,
  type JobOptions,
  toJobOptions,
} from '../../../packages/launcher/src/args/job-options.ts'
export {
  fillTemplate,
  type RankFacts,
  templateProblem,
} from '../../../packages/launcher/src/args/log-prefix.ts'
export type { LogFormat } from '../../../packages/launcher/src/args/output-options.ts'
export { toProtection } from '../../../packages/launcher/src/args/job-options.ts'
export type { Capacity } from '../../../packages/launcher/src/args/job-options.ts'
export { type ProgramOptions, toProgram } from '../../../packages/launcher/src/args/job-options.ts'
export { parseRankList, splitWords } from '../../../packages/launcher/src/args/readers.ts'
export {
  completeSettings,
  describeEnvironment,
  readSettings,
  variablesOf,
} from '../../../packages/launcher/src/args/settings.ts'
