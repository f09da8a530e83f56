import { monotonicNow } from '@tsrun/core'
import {
  arithmeticOf,
  dtypes,
  isCollective,
  reducing,
  until,
  type Channel,
  type GroupFacts,
  type Operation,
  type RunningOperation,
  type Steps,
  type TransportCollectives,
} from '@tsrun/distributed/transport'
import type { Communicators } from './communicators.ts'
import type { LibMpi } from './libmpi.ts'
import { low, type NativeMemory } from './memory.ts'
import { resultOf, startCollective } from './start-collective.ts'
import { reductionHandle } from './abi.ts'

/** A collective that libmpi runs, or will run once the communicator of its group exists. */
interface Request {
  readonly running: RunningOperation
  readonly operation: Operation
  /** Heap offset of the MPI_Request. */
  readonly at: number
  done: boolean
  error: Error | undefined
}

/** The communicator of a group, and the requests that wait for it. */
interface MpiGroup {
  communicator: number | undefined
  /** Requests that wait for the communicator, in call order, which is the same on all ranks. */
  readonly early: Request[]
  isOpening: boolean
}

/** Largest number of requests to test in one call of `progress`. */
const ASKED = 32
/** Largest number of elements in one call of libmpi. */
const MOST = 2 ** 31 - 1

/** Runs collectives in libmpi. */
export class MpiCollectives implements TransportCollectives {
  readonly #mpi: LibMpi
  readonly #native: NativeMemory
  readonly #communicators: Communicators
  readonly #groups = new Map<number, MpiGroup>()
  /** Requests that libmpi is running. */
  #active: Request[] = []
  /** Requests that failed before libmpi accepted them. */
  #refused: Request[] = []
  #next = 0

  constructor(mpi: LibMpi, native: NativeMemory, communicators: Communicators) {
    this.#mpi = mpi
    this.#native = native
    this.#communicators = communicators
    const communicator = communicators.duplicateWorld()
    this.#groups.set(0, { communicator, early: [], isOpening: false })
  }

  get isBusy(): boolean {
    return this.#active.length > 0
  }

  take(operation: Operation, group: GroupFacts): Operation | undefined {
    return this.#canRun(operation, group) ? { ...operation, algorithm: 'mpi' } : undefined
  }

  *run(running: RunningOperation): Steps {
    const group = this.#groupOf(running.group.id)
    const { operation } = running
    const handed = apart(running, operation)
    const at = running.scratch(8)
    const request: Request = { running, operation: handed, at, done: false, error: undefined }
    if (group.communicator !== undefined) this.#start(request, group.communicator)
    else yield* this.#startEarly(request, group)
    yield* until(request)
    if (request.error !== undefined) throw request.error
    const result = resultOf(running, operation)
    if (result === undefined) return
    if (handed !== operation) running.kernels.copy(result.at, handed.output, result.bytes)
    arithmeticOf(running, operation).finish(result.at, result.bytes)
  }

  progress(): boolean {
    const hasMoved = this.#communicators.progress()
    const ended = this.#refused.splice(0)
    const asked = Math.min(this.#active.length, ASKED)
    for (let i = 0; i < asked; i++) {
      this.#next = (this.#next + 1) % this.#active.length
      const request = this.#active[this.#next]!
      if (request.running.state !== 'running') {
        // libmpi never releases the buffers of a failed operation.
        this.#native.integers[low.abandoned / 4]! += 1
        request.done = true
      } else if (this.#isDone(request)) {
        request.done = true
        ended.push(request)
      }
    }
    if (asked > 0) this.#active = this.#active.filter(({ done }) => !done)
    for (const request of ended) request.running.resume(request)
    return hasMoved || ended.length > 0
  }

  /** Counts pending operations as abandoned, because the engine ends without waiting for them. */
  abandon(): void {
    this.#native.integers[low.abandoned / 4]! += this.#active.length
  }

  removeGroup(id: number): void {
    const group = this.#groups.get(id)
    this.#groups.delete(id)
    const isHeld = this.#active.some(({ running }) => running.group.id === id)
    if (group?.communicator !== undefined && !isHeld) this.#communicators.free(group.communicator)
  }

  #canRun(operation: Operation, { ranks }: GroupFacts): boolean {
    const { name, algorithm, reduction, dtype, count, deterministic, isReserved } = operation
    if (!isCollective(operation) || algorithm !== 'auto') return false
    // Leave reserved and deterministic collectives to the engine. libmpi needs the same order of
    // calls on all ranks, which reserved collectives lack. It does not combine in rank order, which
    // deterministic collectives require.
    if (isReserved || deterministic) return false
    if (ranks.length === 1 || name === 'monitoredBarrier' || count > MOST) return false
    const { handles } = this.#mpi.abi
    return !reducing.has(name) || reductionHandle(handles, reduction, dtype) !== undefined
  }

  #groupOf(id: number): MpiGroup {
    const known = this.#groups.get(id)
    if (known !== undefined) return known
    const group = { communicator: undefined, early: [], isOpening: false }
    this.#groups.set(id, group)
    return group
  }

  /**
   * Creates the communicator of a group in the group's first operation. Operations that start
   * meanwhile wait.
   */
  *#startEarly(request: Request, group: MpiGroup): Steps {
    group.early.push(request)
    if (group.isOpening) return
    group.isOpening = true
    const communicator = yield* this.#communicators.make(request.running)
    group.communicator = communicator
    for (const early of group.early.splice(0)) {
      if (early.running.state === 'running') this.#start(early, communicator)
    }
  }

  #start(request: Request, communicator: number): void {
    const { running: channel, operation, at } = request
    const call = { mpi: this.#mpi, native: this.#native, channel, operation, communicator }
    try {
      startCollective(call, this.#native.address(at))
      this.#active.push(request)
      request.running.started = monotonicNow()
    } catch (error) {
      request.done = true
      request.error = error as Error
      this.#refused.push(request)
    }
  }

  #isDone(request: Request): boolean {
    const { abi, call } = this.#mpi
    const flag = this.#native.address(low.flag)
    try {
      call('Test', this.#native.address(request.at), flag, abi.statusIgnore)
      return this.#native.integer(low.flag) !== 0
    } catch (error) {
      request.error = error as Error
      return true
    }
  }
}

/** Separates input and output if an operation is in place in a way that libmpi does not support. */
function apart(channel: Channel, operation: Operation): Operation {
  const { name, input, output, count, dtype } = operation
  const slice = count * dtypes[dtype].bytes
  const whole = channel.size * slice
  if (name === 'allToAll' && input === output) {
    const copy = channel.scratch(whole)
    channel.kernels.copy(copy, input, whole)
    return { ...operation, input: copy }
  }
  const isInside = output >= input && output < input + whole
  if (name !== 'reduceScatter' || !isInside) return operation
  return { ...operation, output: channel.scratch(slice) }
}
