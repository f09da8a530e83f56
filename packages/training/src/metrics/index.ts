export type { MetricLog } from './metric-log.ts'
export type { MetricLogOptions } from './ranks.ts'
export { tensorBoard } from './tensor-board.ts'
export { csv, jsonl } from './text-logs.ts'
