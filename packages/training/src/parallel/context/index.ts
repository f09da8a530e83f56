export { contextParallel } from './context-parallel.ts'
export { zigzagPositions, type Place } from './ring-attention.ts'
