import { tsrError } from '@tsrun/core'
import type { Module } from '../../model/module.ts'
import { modulesOf } from '../../model/module.ts'
import { isColumnParallel } from './linear-layers.ts'

interface NamedLayer {
  readonly name: string
  readonly module: Module
}

/**
 * Tells the layers after those that gather `partial` that the gradients of their inputs are summed
 * there. If both summed them, they would be counted once per rank.
 *
 * @throws ERR_TSR_ARGUMENT when a different kind of layer follows, whose gradient needs no sum
 */
export function connectPartialGathers(model: Module): void {
  for (const { name, module } of [{ name: '', module: model }, ...modulesOf(model)]) {
    const { children = {}, layers } = module
    const prefix = name === '' ? '' : `${name}.`
    const inside = Object.entries(children).map(([key, child]) => ({
      name: `${prefix}${key}`,
      module: child,
    }))
    const row = layers?.map(
      (layer) => inside.find((each) => each.module === layer) ?? unnamed(layer),
    )
    // Only if the order is known can one layer directly follow another.
    for (const [i, layer] of (row ?? inside).entries()) connect(layer, row?.[i + 1])
  }
}

const unnamed = (module: Module): NamedLayer => ({ name: 'another layer', module })

/** Checks that a layer may be followed by `next`, and tells `next` what it has to know. */
function connect({ name, module }: NamedLayer, next: NamedLayer | undefined): void {
  if (!isColumnParallel(module) || module.gather !== 'partial') return
  const behind = next?.module
  if (behind !== undefined && isColumnParallel(behind) && behind.input === 'replicated') {
    behind.isBehindPartial = true
    return
  }
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'plan',
    value: `gather: 'partial' for ${name}, followed by ${next?.name ?? 'an unknown layer'}`,
    expected: "a columnParallel() layer directly after it, or gather: 'replicated'",
  })
}
