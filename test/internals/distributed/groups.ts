export { roomFor } from '../../../packages/distributed/src/groups/objects/encoding.ts'
export * as groupFunctions from '../../../packages/distributed/src/group-functions.ts'
export {
  createWorldGroup,
  EngineProcessGroup,
} from '../../../packages/distributed/src/groups/group.ts'
export { exchangeEndpoints } from '../../../packages/distributed/src/groups/join/endpoints.ts'
export { joinWorld } from '../../../packages/distributed/src/groups/join/join.ts'
export { chooseEngine } from '../../../packages/distributed/src/groups/join/options.ts'
export { agreeOnSharing } from '../../../packages/distributed/src/groups/join/sharing.ts'
export {
  checkSameTuning,
  readTuning,
} from '../../../packages/distributed/src/groups/join/tuning-file.ts'
export {
  checkChoices,
  publishedGroup,
  readDecision,
  readPublished,
  readVotes,
  type Vote,
} from '../../../packages/distributed/src/groups/membership/published.ts'
export { survivorsOf } from '../../../packages/distributed/src/groups/membership/shrink.ts'
export type { GroupCalls } from '../../../packages/distributed/src/process-group.ts'
