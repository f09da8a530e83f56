export type { MetricLog, MetricLogOptions } from './metric-log.ts'
export { tensorBoard } from './tensor-board.ts'
export { csv, jsonl } from './text-logs.ts'
