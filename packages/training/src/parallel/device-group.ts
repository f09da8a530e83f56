import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { createLogger, tsrError } from '@tsrun/core'
import type { SpanRecorder } from '@tsrun/telemetry'
import type { CallOptions, ProcessGroup, ReduceOptions } from '@tsrun/distributed'
import { currentBackend } from '../backend/current.ts'
import type {
  DeviceCollectives,
  DeviceCommunicator,
  DeviceFailure,
  DeviceReduction,
  PreparedReduction,
} from '../tfjs/backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'

/*
 * Collectives on the memory of GPUs. Where they cannot be used, or are not asked for, the values of
 * tensors travel through buffers of the group in the memory of the host.
 */

const groups = new WeakMap<ProcessGroup, Promise<DeviceGroup | undefined>>()

/**
 * The collectives of a group on the memory of its GPUs; undefined if tensors pass through the memory of
 * the host. With TSRUN_NCCL=1, which is the same on all ranks, the ranks agree on it at the first call,
 * which all of them make: each has to have a GPU of its own. Without it, nothing is awaited or sent.
 */
export function deviceGroupOf(group: ProcessGroup): Promise<DeviceGroup | undefined> | undefined {
  if (!isAskedFor() || group.size === 1) return undefined
  let found = groups.get(group)
  if (found === undefined) {
    found = agree(group)
    groups.set(group, found)
  }
  return found
}

/** The reduction as a device makes it; undefined if its result would not be that of the host. */
export function deviceReduction({
  op = 'sum',
  algorithm = 'auto',
  deterministic = false,
}: ReduceOptions = {}): DeviceReduction | undefined {
  if (algorithm !== 'auto' || deterministic) return undefined
  return (['sum', 'avg', 'product'] as const).find((name) => name === op)
}

/** @throws ERR_TSR_ENVIRONMENT */
function isAskedFor(): boolean {
  const value = process.env['TSRUN_NCCL'] ?? '0'
  if (value === '0' || value === '1') return value === '1'
  throw tsrError('ERR_TSR_ENVIRONMENT', { variable: 'TSRUN_NCCL', value, expected: '0 or 1' })
}

/** What a rank has: a device, or a reason why not. */
interface Facts {
  readonly library?: string
  /** The host and the device. */
  readonly device?: string
  readonly problem?: string
  /** Of rank 0. */
  readonly id?: Uint8Array
}

async function agree(group: ProcessGroup): Promise<DeviceGroup | undefined> {
  const own = findCollectives()
  const facts = await group.allGatherObject(describeOwn(own, group.rank), {
    label: 'what each rank has for NCCL',
  })
  const problem = problemOf(facts, group.ranks)
  const { name, rank, size, timeout } = group
  if (rank === 0) {
    const logger = createLogger('training')
    if (problem === undefined) {
      const { library } = facts[0]!
      logger.info({ group: name }, `group ${name} reduces tensors on its GPUs with ${library!}`)
    } else {
      const passes = 'its tensors pass through the memory of the host'
      logger.warn({ group: name }, `group ${name} does without NCCL (${problem}): ${passes}`)
    }
  }
  if (problem !== undefined || own instanceof Error) return undefined
  return new DeviceGroup(group, own.connect(facts[0]!.id!, rank, size, timeout))
}

function findCollectives(): DeviceCollectives | Error {
  try {
    const found = currentBackend().collectives?.()
    return found ?? new Error(`its tensors are on ${tf.getBackend()}`)
  } catch (error) {
    return error as Error
  }
}

function describeOwn(own: DeviceCollectives | Error, rank: number): Facts {
  if (own instanceof Error) return { problem: own.message }
  try {
    return {
      library: own.library,
      device: `${hostId()} ${own.device}`,
      ...(rank === 0 && { id: own.uniqueId() }),
    }
  } catch (error) {
    return { problem: (error as Error).message }
  }
}

/** Why the ranks cannot use their devices together. */
export function problemOf(facts: readonly Facts[], ranks: readonly number[]): string | undefined {
  const lacking = facts.findIndex(({ problem }) => problem !== undefined)
  if (lacking !== -1) return `rank ${ranks[lacking]!}: ${facts[lacking]!.problem!}`
  const owners = new Map<string, number>()
  for (const [i, { device }] of facts.entries()) {
    const other = owners.get(device!)
    if (other !== undefined) return `ranks ${ranks[other]!} and ${ranks[i]!} share a GPU`
    owners.set(device!, i)
  }
  const differs = facts.findIndex(({ library }) => library !== facts[0]!.library)
  if (differs === -1) return undefined
  return `rank ${ranks[differs]!} has ${facts[differs]!.library!}, rank ${ranks[0]!} ${facts[0]!.library!}`
}

/** The same for all processes of a machine, also in containers, and only there. */
function hostId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()
  } catch {
    return hostname()
  }
}

/** The collectives of a group on the memory of its devices. */
export class DeviceGroup {
  readonly #group: ProcessGroup
  readonly #communicator: DeviceCommunicator
  /** Settles when the last operation may start: after all before it. */
  #turn: Promise<unknown> = Promise.resolve()
  #failure: Error | undefined

  constructor(group: ProcessGroup, communicator: DeviceCommunicator) {
    this.#group = group
    this.#communicator = communicator
  }

  /** Where this rank records its spans. */
  get spans(): SpanRecorder | undefined {
    return this.#group.spans
  }

  /**
   * Reduces each of the tensors over the ranks. All ranks call it in the same order among the collectives
   * of the group. It has taken the tensors, which are float32, when it returns its promise.
   *
   * A collective of the group comes before each of NCCL: there, ranks that are lost, late, or call
   * something else fail as always, and a rank enters NCCL only when all others do.
   *
   * @returns new tensors that outlive any tf.tidy
   * @throws the errors of `group.allReduce`; ERR_TSR_NCCL. After an error all calls fail.
   */
  async allReduce(
    tensors: readonly Tensor[],
    reduction: DeviceReduction,
    options: CallOptions = {},
  ): Promise<Tensor[]> {
    if (this.#failure !== undefined) throw this.#failure
    const prepared = this.#communicator.prepare(tensors)
    try {
      const turn = Promise.all([this.#turn, this.#meet(tensors, reduction, options)])
      this.#turn = turn
      await turn
    } catch (error) {
      prepared.abandon()
      throw this.#fail(error)
    }
    return await this.#run(prepared, reduction, options.timeout ?? this.#group.timeout)
  }

  async #run(
    prepared: PreparedReduction,
    reduction: DeviceReduction,
    milliseconds: number,
  ): Promise<Tensor[]> {
    const { name, rank, ranks } = this.#group
    try {
      return await prepared.run(reduction, milliseconds)
    } catch (error) {
      const { message: reason, timedOut } = error as DeviceFailure
      const place = { rank: ranks[rank]!, group: name }
      if (!timedOut) throw this.#fail(tsrError('ERR_TSR_NCCL', { ...place, reason }))
      const peers = ranks.filter((_, other) => other !== rank).join(', ')
      const operation = 'allReduce over NCCL'
      const facts = { ...place, operation, milliseconds, peers }
      throw this.#fail(tsrError('ERR_TSR_OPERATION_TIMEOUT', facts))
    }
  }

  /** Waits until all ranks have called the same. */
  async #meet(
    tensors: readonly Tensor[],
    reduction: DeviceReduction,
    { timeout, signal, label = 'tensors on GPUs' }: CallOptions,
  ): Promise<void> {
    const group = this.#group
    const hash = hashOf([reduction, ...tensors.map(({ size }) => size)].join())
    const bounds = group.alloc('float64', 2)
    try {
      bounds.set([hash, -hash])
      const given = { ...(timeout !== undefined && { timeout }), ...(signal && { signal }) }
      await group.allReduce(bounds, { op: 'max', label, ...given })
      if (bounds[0] === -bounds[1]!) return
    } finally {
      group.free(bounds)
    }
    const reason = 'the ranks reduce tensors of different sizes, or reduce them differently'
    throw tsrError('ERR_TSR_NCCL', { rank: group.ranks[group.rank]!, group: group.name, reason })
  }

  #fail(error: unknown): Error {
    if (this.#failure === undefined) this.#communicator.close()
    this.#failure ??= error as Error
    return error as Error
  }
}

/** FNV-1a, 32 bits. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) {
    hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  }
  return hash >>> 0
}
