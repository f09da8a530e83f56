import { ALL, planOf, type FlatEpoch, type FlatPlan } from '../../algorithms/flat.ts'
import type { TuningTable } from '../../algorithms/tuning-table.ts'
import { dtypes } from '../../dtype.ts'
import type { SharedContext } from '../../engine/epoch.ts'
import { Epochs } from '../../engine/epochs.ts'
import { layoutOf } from '../../engine/group.ts'
import { chooseShared } from '../../engine/shared-collectives.ts'
import { WindowRun } from '../../engine/window-run.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import {
  fingerprintOf,
  reducing,
  type Fingerprint,
  type Operation,
  type OperationName,
} from '../../operation.ts'
import type { Ticket } from '../../ticket.ts'
import type { SharedSlots } from '../../transports/shared-slots.ts'
import type { GroupFacts } from '../../transports/transport-collectives.ts'

/** What operations on the calling thread use. */
export interface LocalContext {
  readonly slots: SharedSlots
  readonly kernels: Kernels
  /** World rank. */
  readonly rank: number
  /** By world rank; see `Transport`. */
  readonly hosts: readonly number[]
  readonly tuning: TuningTable
  /** Those of the engine; see `createEpochs`. */
  readonly epochs: Int32Array
  /** Copies out of another rank's heap; undefined where only small collectives run here. */
  readonly get: ((peer: number, at: number, from: number, bytes: number) => void) | undefined
  /** Whether the engine has taken all its commands and does not need this thread to continue. */
  readonly isIdle: () => boolean
}

/** What the calls of an operation with the same arguments have in common. */
export interface Form {
  readonly fingerprint: Fingerprint
  /** Undefined: it is a large one, which runs on a window. */
  readonly plan: FlatPlan | undefined
}

/**
 * The epochs of a group whose ranks share slots, as the calling thread begins and ends them: one at a time,
 * while the engine has none under way.
 */
export class LocalGroup implements FlatEpoch {
  readonly id: number
  readonly name: string
  /** Rank in the group. */
  readonly rank: number
  readonly size: number
  readonly kernels: Kernels
  readonly slotOf: (rank: number) => number
  readonly #context: LocalContext
  readonly #facts: GroupFacts
  /** World ranks of the others. */
  readonly #peers: readonly number[]
  readonly #epochs: Epochs
  /** By operation: the arguments of the last call, and its form; undefined: the engine must run it. */
  readonly #known = new Map<OperationName, { of: Operation; form: Form | undefined }>()
  readonly #header = { sequence: 0, fingerprint: { kind: 0, root: 0, count: 0 } as Fingerprint }
  readonly #windows: SharedContext | undefined
  /** What is under way here. */
  current: Ticket | undefined
  #form: Form | undefined
  /** Of a large one. */
  #run: WindowRun | undefined
  /** Offset of the scratch that it uses. */
  #scratch = 0
  #epoch = 0
  /** How many of the peers have begun the epoch. */
  #arrived = 0
  /** Whether a peer of a large one runs something else. */
  #differs = false

  constructor(context: LocalContext, id: number, name: string, ranks: readonly number[]) {
    const { slots, kernels, rank, epochs, hosts, tuning, get } = context
    this.id = id
    this.name = name
    this.rank = ranks.indexOf(rank)
    this.size = ranks.length
    this.kernels = kernels
    this.slotOf = (member) => slots.slotOf(ranks[member]!, id, this.#epoch)
    this.#context = context
    const layout = layoutOf(ranks.map((peer) => hosts[peer]!))
    this.#facts = { id, rank: this.rank, ranks, layout }
    this.#peers = ranks.filter((peer) => peer !== rank)
    this.#epochs = new Epochs(epochs, id)
    const onMismatch = (): void => {
      this.#differs = true
    }
    this.#windows = get && { slots, kernels, rank, epochs, tuning, get, onMismatch }
  }

  /** Undefined for an operation that the engine must run. */
  formOf(operation: Operation): Form | undefined {
    const known = this.#known.get(operation.name)
    if (known !== undefined && isAlike(known.of, operation)) return known.form
    const form = this.#newFormOf(operation)
    this.#known.set(operation.name, { of: { ...operation }, form })
    return form
  }

  /** Whether an operation may begin the next epoch here. */
  isFreeFor(operation: Operation): boolean {
    const { slots, isIdle } = this.#context
    const epochs = this.#epochs
    if (operation.aborted || !isIdle() || !epochs.isOpen) return false
    const before = epochs.given
    for (const peer of this.#peers) {
      if (((slots.epochOf(peer, this.id) - before) | 0) < 0) return false
    }
    return true
  }

  /**
   * Begins the next epoch.
   *
   * @param scratch - offset of memory for a large operation, else 0
   */
  begin(ticket: Ticket, form: Form, scratch: number): void {
    this.current = ticket
    this.#form = form
    this.#scratch = scratch
    this.#arrived = 0
    this.#differs = false
    if (form.plan === undefined) this.#run = this.#openWindow(ticket.operation, form, scratch)
    else this.#publish(ticket.operation, form, form.plan)
  }

  /** See `Operation`. */
  get begun(): number {
    return this.#run?.begun ?? 1
  }

  /** Ends what is under way if all ranks are there and run the same. */
  proceed(): 'over' | 'waiting' | 'different' {
    const { plan } = this.#form!
    if (plan === undefined) {
      if (this.#run!.next().done === true) return 'over'
      return this.#differs ? 'different' : 'waiting'
    }
    if (!this.#haveArrived()) return 'waiting'
    if (!this.#agree()) return 'different'
    plan.take?.(this, this.current!.operation, plan.bytes)
    this.#epochs.over = this.#epoch
    return 'over'
  }

  /** Nothing is under way here any more. @returns the scratch that was used */
  end(): number {
    const scratch = this.#scratch
    this.current = this.#form = this.#run = undefined
    this.#scratch = 0
    return scratch
  }

  #openWindow(operation: Operation, { fingerprint }: Form, from: number): WindowRun {
    let next = from
    const scratch = (bytes: number): number => {
      next += bytes
      return next - bytes
    }
    return new WindowRun({
      context: this.#windows!,
      running: {
        ...{ operation, scratch, group: this.#facts, fingerprint },
        ...{ state: 'running', started: 0, resume: () => undefined },
      },
      epochs: this.#epochs,
      waiting: [],
    })
  }

  #publish(operation: Operation, { fingerprint }: Form, { published }: FlatPlan): void {
    const { slots } = this.#context
    const epochs = this.#epochs
    const { name, reduction, dtype, input, factor } = operation
    if (reduction === 'premulSum' && reducing.has(name)) {
      this.kernels.scale(dtype, input, published / dtypes[dtype].bytes, factor)
    }
    this.#epoch = epochs.given = (epochs.given + 1) | 0
    this.#header.sequence = operation.sequence
    this.#header.fingerprint = fingerprint
    slots.publish(this.id, this.#epoch, this.#header, input, published)
  }

  /** Spins briefly until all ranks have entered the epoch; returns whether they have. */
  #haveArrived(): boolean {
    const { slots } = this.#context
    const peers = this.#peers
    while (this.#arrived < peers.length) {
      if (!slots.awaitEpoch(peers[this.#arrived]!, this.id, this.#epoch)) return false
      this.#arrived++
    }
    return true
  }

  /** Whether all ranks, which have begun the epoch, run the same operation. */
  #agree(): boolean {
    const { slots } = this.#context
    for (const peer of this.#peers) {
      if (!slots.matches(peer, this.id, this.#epoch, this.#header)) return false
    }
    return true
  }

  #newFormOf(operation: Operation): Form | undefined {
    const algorithm = chooseShared(operation, this.#facts, this.#context)
    if (algorithm === undefined) return undefined
    const fingerprint = fingerprintOf({ ...operation, algorithm }, dtypes[operation.dtype].code)
    if (algorithm === 'window') return this.#windows && { fingerprint, plan: undefined }
    const plan = planOf(operation, this.rank, this.size)
    // a rank that waits for none or one of the others ends before it has compared the calls of all
    return plan.awaited === ALL ? { fingerprint, plan } : undefined
  }
}

/** Whether two calls of one operation have the same form. */
function isAlike(a: Operation, b: Operation): boolean {
  return (
    a.count === b.count &&
    a.dtype === b.dtype &&
    a.reduction === b.reduction &&
    a.factor === b.factor &&
    a.peer === b.peer &&
    a.algorithm === b.algorithm &&
    a.isReserved === b.isReserved
  )
}
