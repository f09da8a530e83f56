export { findFreePort, findStoreAddress } from '../../../packages/launcher/src/nodes/endpoint.ts'
export { nextNode } from '../../../packages/launcher/src/nodes/gather.ts'
export {
  keys,
  packReport,
  shortenFlight,
  unpackReport,
} from '../../../packages/launcher/src/nodes/messages.ts'
export { findMismatch, findUnreachable } from '../../../packages/launcher/src/nodes/gather.ts'
export { countRestarts, judge } from '../../../packages/launcher/src/nodes/verdict.ts'
export {
  type HeartbeatMonitor,
  monitorHeartbeats,
} from '../../../packages/launcher/src/nodes/waiting.ts'
export {
  type ErrorReport,
  parseControlMessage,
} from '../../../packages/launcher/src/protocol/control.ts'
export {
  arrivalMessage,
  type Failure,
  invitationOf,
  type MemoryEvents,
  type NodePlan,
  type NodeReport,
  type NumberedNode,
  type RankOutcome,
  type RankPlace,
  reportMessage,
  verdictMessage,
} from '../../../packages/launcher/src/protocol/nodes.ts'
export { chooseHosts, parseHostfile } from '../../../packages/launcher/src/remote/hosts.ts'
