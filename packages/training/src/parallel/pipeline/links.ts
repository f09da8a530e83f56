import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/distributed/record'
import { communicates, type Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { Tensor } from '../../tfjs/tfjs.ts'
import { Activations, noMessages, type StageMessages } from './activations.ts'
import { compareRanks, type RankFacts } from './compare-ranks.ts'
import { TiedParameters } from './tied-parameters.ts'

/** The communication between the stages of this rank and those of other ranks. */
export interface StageLinks {
  readonly group: ProcessGroup | undefined
  readonly rank: number
  readonly messages: StageMessages
  /** The parameters of this rank's stages. A parameter of several stages is listed once. */
  readonly parameters: readonly Parameter[]
  /**
   * The first call checks that all ranks have parts of the same pipeline.
   *
   * @returns whether any stage of any rank communicates with replicas in its passes
   */
  compare(): Promise<boolean>
  /**
   * The first call sets a parameter that several ranks share to the same value on all of them. Sharded
   * parameters must be equal already.
   */
  tie(isSharded: boolean): Promise<void>
  /** Whether several stages have a parameter with this name. */
  isShared(name: string): boolean
  /** Sums the gradients of parameters that several ranks share, and replaces the gradients by the sums. */
  sumShared(gradients: Map<string, Tensor>): Promise<void>
  /** Broadcasts up to `FIGURES` numbers from the rank of the last stage. */
  tell(figures: readonly number[]): Promise<readonly number[]>
  /** Broadcasts an object from the rank of the last stage. */
  share<T>(result: T): Promise<T>
  /** Gathers one object per rank, in rank order. */
  gather<T>(own: T): Promise<readonly T[]>
  dispose(): void
}

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
  /** The properties of all ranks, which `compare` gathers; undefined before. */
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

/** The links of a stage that is the whole model: it exchanges no messages. */
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
