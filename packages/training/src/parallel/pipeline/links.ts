import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/distributed/record'
import { communicates, type Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { Tensor } from '../../tfjs/tfjs.ts'
import { createActivations, noMessages, type StageMessages } from './activations.ts'
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

export function groupLinks(
  group: ProcessGroup,
  { modules, placement, recorder, describe }: Parts,
): StageLinks {
  const tied = new TiedParameters(modules, group)
  const { parameters } = tied
  const root = placement.at(-1)!
  const buffer = group.alloc('float64', FIGURES)
  /** The properties of all ranks, which `compare` gathers; undefined before. */
  let facts: readonly RankFacts[] | undefined
  return {
    group,
    rank: group.rank,
    messages: createActivations(group, placement, recorder),
    parameters,
    async compare() {
      if (facts === undefined) {
        const own = {
          ...describe(),
          parameters: parameters.map(({ name, shape }) => ({ name, shape })),
          communicates: modules.some(communicates),
        }
        facts = await compareRanks(own, group)
      }
      return facts.some(({ communicates }) => communicates)
    },
    tie: (isSharded) => tied.prepare(facts!, isSharded),
    isShared: (name) => tied.isShared(name),
    sumShared: (gradients) => tied.sum(gradients),
    async tell(figures) {
      if (group.size === 1) return figures
      const told = buffer.subarray(0, figures.length)
      told.set(figures)
      await group.broadcast(told, root, { label: 'loss' })
      return [...told]
    },
    share: async (result) => await group.broadcastObject(result, root, { label: 'outputs' }),
    async gather(own) {
      if (group.size === 1) return [own]
      return await group.allGatherObject(own, { label: 'facts of the step' })
    },
    dispose() {
      tied.dispose()
      group.free(buffer)
    },
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
