import { dtypeByCode, dtypes } from '../dtype.ts'
import { algorithmNames, operationCodes, type Operation, type OperationName } from '../operation.ts'
import { reductionCodes, type ReduceOp } from '../reduction.ts'

/*
 * The memory that the main thread and the engine's worker share, besides the heap. The main thread
 * writes commands to a ring buffer. The worker writes the state of each pending operation to its slot.
 */

/** Index of each word of the control block. */
export const control = {
  /** Number of commands that the main thread has written, modulo 2^32. */
  written: 0,
  /** Number of commands that the worker has read, modulo 2^32. */
  read: 1,
  /** 1 while the worker may sleep. The main thread must then wake it after writing a command. */
  parked: 2,
  /** How to stop. 0: keep running; 1: shut down gracefully; 2: close the connections at once. */
  stop: 3,
  /** 1 once the worker has closed its connections. */
  closed: 4,
} as const

export const slotStates = { free: 0, running: 1, done: 2, failed: 3 } as const

export const COMMANDS = 1024
export const SLOTS = 4096
const COMMAND_DOUBLES = 24
const CONTROL_BYTES = 64

export const commandKinds = { start: 1, abort: 2, changeGroup: 3 } as const

export interface SharedState {
  readonly control: Int32Array
  readonly commands: Float64Array
  readonly states: Int32Array
  /** When the operation of each slot was posted, started and completed. */
  readonly timings: Float64Array
}

export function createSharedState(): SharedState {
  return {
    control: new Int32Array(new SharedArrayBuffer(CONTROL_BYTES)),
    commands: new Float64Array(new SharedArrayBuffer(COMMANDS * COMMAND_DOUBLES * 8)),
    timings: new Float64Array(new SharedArrayBuffer(SLOTS * 3 * 8)),
    states: new Int32Array(new SharedArrayBuffer(SLOTS * 4)),
  }
}

/** Returns the index of the first double of command `n`. */
export function commandAt(n: number): number {
  return (n % COMMANDS) * COMMAND_DOUBLES
}

const operationNames = Object.keys(operationCodes) as OperationName[]
const reductions = Object.keys(reductionCodes) as ReduceOp[]

/** Writes an operation into a command, after its first two doubles (the kind and the slot). */
export function writeOperation(commands: Float64Array, at: number, operation: Operation): void {
  commands[at + 2] = operationNames.indexOf(operation.name)
  commands[at + 3] = operation.group
  commands[at + 4] = operation.sequence
  commands[at + 5] = dtypes[operation.dtype].code
  commands[at + 6] = reductions.indexOf(operation.reduction)
  commands[at + 7] = algorithmNames.indexOf(operation.algorithm)
  commands[at + 8] = operation.input
  commands[at + 9] = operation.output
  commands[at + 10] = operation.count
  commands[at + 11] = operation.peer
  commands[at + 12] = operation.tag
  commands[at + 13] = operation.timeout
  commands[at + 14] = operation.aborted ? 1 : 0
  commands[at + 15] = operation.table
  commands[at + 16] = operation.flight
  commands[at + 17] = operation.deterministic ? 1 : 0
  commands[at + 18] = operation.isReserved ? 1 : 0
  commands[at + 19] = operation.begun
}

export function readOperation(commands: Float64Array, at: number): Operation {
  return {
    name: operationNames[commands[at + 2]!]!,
    group: commands[at + 3]!,
    sequence: commands[at + 4]!,
    dtype: dtypeByCode(commands[at + 5]!)!,
    reduction: reductions[commands[at + 6]!]!,
    algorithm: algorithmNames[commands[at + 7]!]!,
    input: commands[at + 8]!,
    output: commands[at + 9]!,
    count: commands[at + 10]!,
    peer: commands[at + 11]!,
    tag: commands[at + 12]!,
    timeout: commands[at + 13]!,
    aborted: commands[at + 14] === 1,
    table: commands[at + 15]!,
    flight: commands[at + 16]!,
    deterministic: commands[at + 17] === 1,
    isReserved: commands[at + 18] === 1,
    begun: commands[at + 19]!,
  }
}
