import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/distributed/record'
import { communicates, type Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { Tensor } from '../../tfjs/tfjs.ts'
import { Activations, noMessages, type StageMessages } from './activations.ts'
import { compareRanks, type RankFacts } from './compare-ranks.ts'
import { TiedParameters } from './tied-parameters.ts'

/** Connects the stages of a rank with the stages of other ranks. */
export interface StageLinks {
  readonly group: ProcessGroup | undefined
  readonly rank: number
  readonly messages: StageMessages
  /** The parameters of this rank's stages, each name once. */
  readonly parameters: readonly Parameter[]
  /**
   * Compares the ranks, on the first call.
   *
   * @returns whether any stage of any rank communicates with replicas in its passes
   */
  compare(): Promise<boolean>
  /**
   * On the first call, gives parameters that ranks share one value. Sharded ones have to be equal already.
   */
  tie(isSharded: boolean): Promise<void>
  /** Whether several stages have a parameter of this name. */
  isShared(name: string): boolean
  /** Replaces the gradients of parameters that several ranks share by their sums. */
  sumShared(gradients: Map<string, Tensor>): Promise<void>
  /** Broadcasts at most `FIGURES` numbers from the rank with the last stage. */
  tell(figures: readonly number[]): Promise<readonly number[]>
  /** Broadcasts an object from the rank with the last stage. */
  share<T>(result: T): Promise<T>
  /** Gathers an object from each rank, in rank order. */
  gather<T>(own: T): Promise<readonly T[]>
  dispose(): void
}

/** The most numbers that `tell` broadcasts. */
const FIGURES = 6

interface Parts {
  readonly modules: readonly Module[]
  /** The rank of each stage. */
  readonly placement: readonly number[]
  readonly recorder: SpanRecorder
  readonly describe: () => Omit<RankFacts, 'parameters' | 'communicates'>
}

export class GroupLinks implements StageLinks {
  readonly group: ProcessGroup
  readonly rank: number
  readonly messages: StageMessages
  readonly #tied: TiedParameters
  readonly #communicates: boolean
  readonly #describe: Parts['describe']
  readonly #lastRank: number
  readonly #figures: Float64Array
  /** The facts of all ranks, once they were compared. */
  #told: readonly RankFacts[] | undefined

  constructor(group: ProcessGroup, { modules, placement, recorder, describe }: Parts) {
    this.group = group
    this.rank = group.rank
    this.#tied = new TiedParameters(modules, group)
    this.#communicates = modules.some(communicates)
    this.messages = new Activations(group, placement, recorder)
    this.#describe = describe
    this.#lastRank = placement.at(-1)!
    this.#figures = group.alloc('float64', FIGURES)
  }

  get parameters(): readonly Parameter[] {
    return this.#tied.parameters
  }

  async compare(): Promise<boolean> {
    if (this.#told === undefined) {
      const parameters = this.parameters.map(({ name, shape }) => ({ name, shape }))
      const own = { ...this.#describe(), parameters, communicates: this.#communicates }
      this.#told = await compareRanks(own, this.group)
    }
    return this.#told.some(({ communicates }) => communicates)
  }

  async tie(isSharded: boolean): Promise<void> {
    await this.#tied.prepare(this.#told!, isSharded)
  }

  isShared(name: string): boolean {
    return this.#tied.isShared(name)
  }

  async sumShared(gradients: Map<string, Tensor>): Promise<void> {
    await this.#tied.sum(gradients)
  }

  async tell(figures: readonly number[]): Promise<readonly number[]> {
    if (this.group.size === 1) return figures
    const told = this.#figures.subarray(0, figures.length)
    told.set(figures)
    await this.group.broadcast(told, this.#lastRank, { label: 'loss' })
    return [...told]
  }

  async share<T>(result: T): Promise<T> {
    return await this.group.broadcastObject(result, this.#lastRank, { label: 'outputs' })
  }

  async gather<T>(own: T): Promise<readonly T[]> {
    if (this.group.size === 1) return [own]
    return await this.group.allGatherObject(own, { label: 'facts of the step' })
  }

  dispose(): void {
    this.#tied.dispose()
    this.group.free(this.#figures)
  }
}

/** The links of a stage that is the whole model. */
export function noLinks(module: Module): StageLinks {
  return {
    group: undefined,
    rank: 0,
    messages: noMessages,
    parameters: module.parameters,
    compare: () => Promise.resolve(communicates(module)),
    tie: () => Promise.resolve(),
    isShared: () => false,
    sumShared: () => Promise.resolve(),
    tell: (figures) => Promise.resolve(figures),
    share: (result) => Promise.resolve(result),
    gather: (own) => Promise.resolve([own]),
    dispose: () => undefined,
  }
}
