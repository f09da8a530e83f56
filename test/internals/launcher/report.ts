export { describeError } from '../../../packages/launcher/src/rank/reporter.ts'
export { hideLibraryFrames } from '../../../packages/launcher/src/rank/stack-frames.ts'
export { failureText, nodeFailureText } from '../../../packages/launcher/src/report/failure-text.ts'
export { describeFailure } from '../../../packages/launcher/src/report/failure.ts'
export {
  describeFinding,
  type FlightFinding,
} from '../../../packages/launcher/src/report/flight-findings.ts'
export { mergeFlight, tailOfFlight } from '../../../packages/launcher/src/report/flight-merge.ts'
export { exitCodeOf, findRootCause } from '../../../packages/launcher/src/report/root-cause.ts'
export { type RankStack, stacksText } from '../../../packages/launcher/src/report/stacks-text.ts'
export {
  type RankUsage,
  readUsage,
  summaryText,
} from '../../../packages/launcher/src/report/usage.ts'
