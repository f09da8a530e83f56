export { describeError, hideLibraryFrames } from '../../../packages/launcher/src/rank/reporter.ts'
export {
  failureText,
  nodeFailureText,
} from '../../../packages/launcher/src/job/failure/failure-text.ts'
export { describeFailure } from '../../../packages/launcher/src/job/failure/failure.ts'
export {
  describeFinding,
  type FlightFinding,
} from '../../../packages/launcher/src/job/failure/flight-findings.ts'
export {
  mergeFlight,
  tailOfFlight,
} from '../../../packages/launcher/src/job/failure/flight-merge.ts'
export {
  exitCodeOf,
  exitCodeOfError,
} from '../../../packages/launcher/src/job/failure/exit-codes.ts'
export { findRootCause } from '../../../packages/launcher/src/job/failure/root-cause.ts'
export {
  type RankStack,
  stacksText,
} from '../../../packages/launcher/src/job/process/stack-requests.ts'
export { type RankUsage, readUsage, summaryText } from '../../../packages/launcher/src/job/usage.ts'
