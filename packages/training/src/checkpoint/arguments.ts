import { refuseUnknown, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { describe } from '../arguments.ts'

/**
 * What comes before the state, or behind it; without types it is easily in another order.
 *
 * @throws ERR_TSR_ARGUMENT unless `directory` is a path, and `group` a group or left out
 */
export function checkPlace(directory: unknown, group: unknown): void {
  if (typeof directory !== 'string') {
    const expected = 'the path of a folder'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'directory', value: describe(directory), expected })
  }
  const given = group as Partial<ProcessGroup> | null | undefined
  if (given === undefined || typeof given?.allGatherObject === 'function') return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'group',
    value: describe(group),
    expected: 'a process group, or undefined for this process alone; options come behind it',
  })
}

/** What `SavedState` and `CheckpointState` have: what was saved may be loaded by the same object. */
const KNOWN = ['model', 'optimizer', 'step', 'data', 'seeds']

/** @throws ERR_TSR_ARGUMENT */
export function checkStateNames(state: object): void {
  refuseUnknown(state, KNOWN, 'state')
}

/** @throws ERR_TSR_ARGUMENT unless `model` is what has parameters */
export function checkModule(model: unknown): void {
  const { parameters, build, layers } = (model ?? {}) as Record<string, unknown>
  if (Array.isArray(parameters)) return
  const refuse = (value: string, expected: string) =>
    tsrError('ERR_TSR_ARGUMENT', { name: 'model', value, expected })
  // before the recipe: one of tf.layers has a build too
  if (Array.isArray(layers)) throw refuse('one of tf.layers', 'ownerOfLayers(model)')
  if (typeof build === 'function') throw refuse('a recipe', 'what its build() makes')
  throw refuse(describe(model), 'a module, a pipeline, or what else has parameters')
}

/** Whether each of them is a function of `value`. */
export function hasMethods(value: unknown, names: readonly string[]): boolean {
  if (typeof value !== 'object' || value === null) return false
  const object = value as Record<string, unknown>
  return names.every((name) => typeof object[name] === 'function')
}
