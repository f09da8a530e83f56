import { tsrError } from '@tsrun/core'
import type { Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { Bucket } from '../data/buckets.ts'
import type { Replicated } from '../data/options.ts'
import { padBucket, type FlatBucket } from './layout.ts'
import type { FullyShardOptions } from './options.ts'

/** A piece of the model that computes on its own, with the buckets of its own parameters. */
export interface UnitPlan {
  /** Absent: the *root*, whose parameters several units use, or nobody knows who. */
  readonly module?: Module
  readonly trained: FlatBucket | undefined
  readonly frozen: FlatBucket | undefined
}

/**
 * Cuts a model into its units, and what is left over.
 *
 * @throws ERR_TSR_ARGUMENT when there is no unit, or one has parameters that the model has not
 */
export function planUnits(
  model: Replicated,
  trained: ReadonlySet<string>,
  ranks: number,
  options: FullyShardOptions,
): UnitPlan[] {
  const modules = options.units ?? chainOf(model)
  if (options.units?.length === 0) {
    const expected = 'one module or more'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'units', value: 'an empty list', expected })
  }
  const uses = new Map<Parameter, number>()
  for (const parameter of modules.flatMap(({ parameters }) => [...new Set(parameters)])) {
    uses.set(parameter, (uses.get(parameter) ?? 0) + 1)
  }
  const all = [...new Set(model.parameters)]
  for (const { name } of [...uses.keys()].filter((parameter) => !all.includes(parameter))) {
    const expected = 'modules with parameters of the model'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'units', value: `one with ${name}`, expected })
  }
  const plan = (parameters: readonly Parameter[]): Omit<UnitPlan, 'module'> => {
    const bucket = (isTrained: boolean): FlatBucket | undefined => {
      const own = parameters.filter(({ name }) => trained.has(name) === isTrained)
      return own.length === 0 ? undefined : padBucket(oneBucket(own), ranks)
    }
    return { trained: bucket(true), frozen: bucket(false) }
  }
  const units = modules.map((module) => ({
    module,
    ...plan([...new Set(module.parameters)].filter((parameter) => uses.get(parameter) === 1)),
  }))
  const rest = all.filter((parameter) => uses.get(parameter) !== 1)
  return rest.length === 0 ? units : [...units, plan(rest)]
}

/** The model's layers where its output is that of one after the other, or the model. */
function chainOf(model: Replicated & Partial<Module>): readonly Module[] {
  if (model.forward === undefined) return []
  return model.layers ?? [model as Module]
}

/** All of them, in the reverse order: that of their gradients. */
function oneBucket(parameters: readonly Parameter[]): Bucket {
  let length = 0
  const slots = [...parameters].reverse().map((parameter) => {
    const slot = { parameter, offset: length, length: parameter.value.size }
    length += slot.length
    return slot
  })
  return { slots, length }
}
