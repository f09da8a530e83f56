import { flatBytes } from '../algorithms/flat.ts'
import { chooseAlgorithm } from '../algorithms/select.ts'
import type { Resumable } from '../algorithms/channel.ts'
import { findWindowCollective } from '../algorithms/window.ts'
import type { AlgorithmName, Operation } from '../operation.ts'
import type {
  GroupFacts,
  RunningOperation,
  TransportCollectives,
} from '../transports/transport-collectives.ts'
import type { EpochRun, Epochs, SharedContext } from './epoch.ts'
import { FlatRun } from './flat-run.ts'
import { WindowRun } from './window-run.ts'

/** Runs collectives of ranks that share memory on what they publish there, without messages. */
export class SharedCollectives implements TransportCollectives {
  readonly #context: SharedContext
  readonly #waiting: EpochRun[] = []
  /** By group id. Ids are given once, so slots never pass from one group to another. */
  readonly #epochs: readonly Epochs[]

  constructor(context: SharedContext) {
    this.#context = context
    this.#epochs = Array.from({ length: context.slots.exposingGroups }, () => ({
      given: 0,
      over: 0,
      steps: 0,
      unchecked: undefined,
    }))
  }

  take(operation: Operation, group: GroupFacts): Operation | undefined {
    const { slots, rank } = this.#context
    const { id, layout, ranks } = group
    if (operation.isReserved || layout !== 'together' || id >= slots.exposingGroups) {
      return undefined
    }
    const algorithm = this.#choose(operation, group)
    if (algorithm === undefined) return undefined
    if (!ranks.every((peer) => peer === rank || slots.reaches(peer))) return undefined
    return { ...operation, algorithm }
  }

  run(running: RunningOperation): Resumable {
    const of = {
      context: this.#context,
      running,
      epochs: this.#epochs[running.group.id]!,
      waiting: this.#waiting,
    }
    return running.operation.algorithm === 'flat' ? new FlatRun(of) : new WindowRun(of)
  }

  progress(): boolean {
    let moved = false
    for (let i = this.#waiting.length - 1; i >= 0; i--) {
      const run = this.#waiting[i]!
      const isRunning = run.running.state === 'running'
      if (isRunning && !run.done) continue
      this.#waiting.splice(i, 1)
      if (!isRunning) continue
      moved = true
      run.running.resume(run)
    }
    return moved
  }

  #choose(operation: Operation, { id, ranks }: GroupFacts): AlgorithmName | undefined {
    const { slots, tuning } = this.#context
    const { name, algorithm } = operation
    const isWindow = (chosen: AlgorithmName): boolean =>
      chosen === 'window' && ranks.length > 1 && findWindowCollective(name) !== undefined
    if (algorithm !== 'auto') return isWindow(algorithm) ? 'window' : undefined
    const bytes = flatBytes(operation, ranks.length)
    if (bytes === undefined) return undefined
    if (id < slots.groups && bytes <= slots.slotBytes) return 'flat'
    const whole = name === 'allGather' ? bytes * ranks.length : bytes
    const chosen = chooseAlgorithm(name, { bytes: whole, layout: 'together' }, tuning)
    return isWindow(chosen) ? 'window' : undefined
  }
}
