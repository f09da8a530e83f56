export { createAnnouncer, openConsole } from '../../../packages/launcher/src/logs/console.ts'
export {
  collapseProgress,
  type Line,
  lineSplitter,
} from '../../../packages/launcher/src/logs/lines.ts'
export {
  makePresenter,
  type Presenter,
  rankPrefix,
} from '../../../packages/launcher/src/logs/presenter.ts'
export { OLDER, openRankFiles } from '../../../packages/launcher/src/logs/log-files.ts'
export { rankReader, type RankReader } from '../../../packages/launcher/src/logs/log-reader.ts'
export { readLastLines } from '../../../packages/launcher/src/logs/recorded-output.ts'
export { findTrace } from '../../../packages/launcher/src/logs/find-trace.ts'
export { mergeTraces, type TraceMerger } from '../../../packages/launcher/src/logs/traces.ts'
