import { argumentError, messageOf, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/distributed/record'
import { communicates, type Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import { compareReplicas } from '../gradients/replicas.ts'
import { checkSearch, type LayerSearch } from '../recipe.ts'
import { createActivations, type StageMessages } from './activations.ts'
import type { CheckedOptions, Plan } from './options.ts'
import type { LayerRange } from './split.ts'
import { checkTied, tieParameters } from './tied-parameters.ts'

export type StageLinks = ReturnType<typeof groupLinks>

interface Parts {
  readonly modules: readonly Module[]
  readonly placement: readonly number[]
  readonly recorder: SpanRecorder
  readonly describe: () => Omit<RankFacts, 'parameters' | 'communicates'>
}

export function groupLinks(group: ProcessGroup, { modules, placement, recorder, describe }: Parts) {
  const tied = tieParameters(modules, group)
  const root = placement.at(-1)!
  /** The properties of all ranks, set by `compare`. */
  let facts: readonly RankFacts[] | undefined
  return {
    group: group as ProcessGroup | undefined,
    rank: group.rank,
    messages: createActivations(group, placement, recorder) as StageMessages | undefined,
    ...tied,

    /** Compares the ranks in the first call. @returns whether any stage communicates with replicas in its passes */
    async compare() {
      facts ??= await compareRanks(
        {
          ...describe(),
          parameters: tied.parameters.map(({ name, shape }) => ({ name, shape })),
          communicates: modules.some(communicates),
        },
        group,
      )
      return facts.some(({ communicates }) => communicates)
    },

    /** Gives a parameter that several ranks share the same value on all of them, in the first call. */
    tie: () => tied.tie(facts!),

    /** Broadcasts numbers from the rank of the last stage. */
    async tell(figures: readonly number[]) {
      if (group.size === 1) return figures
      const told = Float64Array.from(figures)
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
  }
}

/** The links of a whole model. Its only stage exchanges no messages. */
export function noLinks(module: Module): StageLinks {
  return {
    group: undefined,
    rank: 0,
    messages: undefined,
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

interface RankFacts {
  /** The options that must be the same on all ranks, as text for error messages. */
  readonly options: readonly string[]
  /** The recipe's layer names and unmatched patterns; undefined if the recipe has no plan. */
  readonly search: LayerSearch | undefined
  /** For each stage of the rank: its layer names, and the patterns of `recompute` that match none. */
  readonly recomputed: readonly LayerSearch[]
  /** The parameters of the rank's stages. A parameter of several stages is listed once. */
  readonly parameters: readonly Pick<Parameter, 'name' | 'shape'>[]
  /** Whether a stage of the rank communicates with replicas in its passes. */
  readonly communicates: boolean
}

/**
 * Checks that all ranks have parts of the same pipeline. Otherwise they might train a wrong model, or wait for
 * messages that are never sent.
 *
 * @throws ERR_TSR_REPLICA on all ranks, naming the first option that differs from rank 0;
 *   ERR_TSR_ARGUMENT on all ranks when a layer name matches no layer of any rank, or when
 *   parameters with the same name have different shapes
 */
async function compareRanks(own: RankFacts, group: ProcessGroup): Promise<readonly RankFacts[]> {
  const label = 'options and parameters of the pipeline'
  const all = group.size === 1 ? [own] : await group.allGatherObject(own, { label })
  compareReplicas(
    all.map(({ options }) => options),
    group,
    'options',
  )
  checkSearch(
    'plan',
    all.map(({ search }) => search),
  )
  checkSearch(
    'recompute',
    all.flatMap(({ recomputed }) => recomputed),
  )
  checkTied(all.map(({ parameters }) => parameters))
  return all
}

/**
 * Describes the options that must be the same on all ranks: not the loss, which only the last rank uses, and
 * not `recompute`, which does not change gradients.
 */
export function describeOptions(
  plan: Plan,
  split: readonly LayerRange[],
  { clip, optimizer }: CheckedOptions,
): string[] {
  const limit = clip && `maxNorm ${clip.maxNorm}`
  const rate = optimizer && `${optimizer.constructor.name}, learningRate ${optimizer.learningRate}`
  return [
    ...plan.describe(),
    `split [${split.map(({ from, to }) => to - from).join(', ')}]`,
    `clip ${limit ?? 'undefined'}`,
    `optimizer ${rate ?? 'undefined'}`,
  ]
}

/** The call in progress on each group. Two concurrent calls would receive each other's messages. */
const underWay = new WeakMap<object, string>()

/**
 * Allows only one call of a pipeline at a time, and no call after `end`. In a group it also refuses all
 * calls after a failed pass, because a failed pass leaves messages behind that were not received.
 *
 * @param group - undefined for a model of one stage, which exchanges no messages
 */
export function openCalls(group: ProcessGroup | undefined) {
  const key = group ?? {}
  let running: string | undefined
  let failure: { readonly cause: unknown } | undefined
  let isDisposed = false

  const refuseWhile = (other: string | undefined, call: string) => {
    if (other === undefined) return
    if (group === undefined) {
      throw argumentError(call, `a model whose ${other}() is under way`, '`await` before each call')
    }
    const { rank, name } = group
    throw tsrError('ERR_TSR_PIPELINE_BUSY', { rank, group: name, call, running: other })
  }

  return {
    /**
     * Runs a call of the pipeline. Throws if a call of any pipeline on the group is in progress.
     *
     * @throws ERR_TSR_PIPELINE_BUSY (without a group ERR_TSR_ARGUMENT) while another call is in
     *   progress; ERR_TSR_ARGUMENT after `end`
     */
    async alone<T>(call: string, run: () => Promise<T>): Promise<T> {
      if (isDisposed) {
        const value = `one that was disposed before ${call}`
        throw argumentError('the pipeline or model', value, 'one that was not disposed')
      }
      refuseWhile(underWay.get(key), call)
      underWay.set(key, call)
      running = call
      try {
        return await run()
      } finally {
        running = undefined
        underWay.delete(key)
      }
    },

    /**
     * Runs the part of a call that exchanges messages. After a failure all later calls throw, because
     * pending receives would take the messages of later calls.
     *
     * @throws ERR_TSR_PIPELINE_FAILED after an earlier failure
     */
    async pass<T>(run: () => Promise<T>): Promise<T> {
      if (group === undefined) return await run()
      if (failure !== undefined) {
        const { rank, name } = group
        const facts = { rank, group: name, reason: messageOf(failure.cause) }
        throw tsrError('ERR_TSR_PIPELINE_FAILED', facts, failure)
      }
      try {
        return await run()
      } catch (cause) {
        failure = { cause }
        throw cause
      }
    },

    /**
     * Makes all later calls throw.
     *
     * @returns whether this is the first call of `end`
     * @throws ERR_TSR_PIPELINE_BUSY while a call is in progress; that call continues
     */
    end() {
      refuseWhile(running, 'dispose')
      const isFirst = !isDisposed
      isDisposed = true
      return isFirst
    },
  }
}
