export {
  stateBytes,
  stepTraffic,
  type Stage,
  type StateSizes,
  type TrafficSizes,
} from './formulas.ts'
export { fullyShard, type FullyShard } from './fully-shard.ts'
export type { ShardingGroups } from './groups.ts'
export type { StateMemory } from './ledger.ts'
export type { FullyShardOptions } from './options.ts'
export type { ShardedRecording } from './values.ts'
