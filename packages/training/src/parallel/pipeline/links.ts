import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/distributed/record'
import { communicates, type Module } from '../../model/module.ts'
import { createActivations, noMessages } from './activations.ts'
import { compareRanks, type RankFacts } from './compare-ranks.ts'
import { tieParameters } from './tied-parameters.ts'

/** The communication between the stages of this rank and those of other ranks. */
export type StageLinks = ReturnType<typeof groupLinks>

const FIGURES = 6

interface Parts {
  readonly modules: readonly Module[]
  /** The rank of each stage. */
  readonly placement: readonly number[]
  readonly recorder: SpanRecorder
  readonly describe: () => Omit<RankFacts, 'parameters' | 'communicates'>
}

export function groupLinks(group: ProcessGroup, { modules, placement, recorder, describe }: Parts) {
  const tied = tieParameters(modules, group)
  const root = placement.at(-1)!
  const buffer = group.alloc('float64', FIGURES)
  /** The properties of all ranks, which `compare` gathers; undefined before. */
  let facts: readonly RankFacts[] | undefined
  return {
    group: group as ProcessGroup | undefined,
    rank: group.rank,
    messages: createActivations(group, placement, recorder),
    ...tied,

    /**
     * The first call checks that all ranks have parts of the same pipeline.
     *
     * @returns whether any stage of any rank communicates with replicas in its passes
     */
    async compare() {
      if (facts === undefined) {
        const own = {
          ...describe(),
          parameters: tied.parameters.map(({ name, shape }) => ({ name, shape })),
          communicates: modules.some(communicates),
        }
        facts = await compareRanks(own, group)
      }
      return facts.some(({ communicates }) => communicates)
    },

    /**
     * The first call sets a parameter that several ranks share to the same value on all of them. Sharded
     * parameters must be equal already.
     */
    tie: (isSharded: boolean) => tied.tie(facts!, isSharded),

    /** Broadcasts up to `FIGURES` numbers from the rank of the last stage. */
    async tell(figures: readonly number[]) {
      if (group.size === 1) return figures
      const told = buffer.subarray(0, figures.length)
      told.set(figures)
      await group.broadcast(told, root, { label: 'loss' })
      return [...told]
    },

    /** Broadcasts an object from the rank of the last stage. */
    share: async <T>(result: T) => await group.broadcastObject(result, root, { label: 'outputs' }),

    /** Gathers one object per rank, in rank order. */
    async gather<T>(own: T): Promise<readonly T[]> {
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
