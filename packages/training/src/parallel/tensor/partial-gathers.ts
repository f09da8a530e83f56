import { tsrError } from '@tsrun/core'
import type { Module } from '../../model/module.ts'
import { modulesOf } from '../../model/module.ts'
import { isColumnParallel } from './linear-layers.ts'

interface NamedLayer {
  readonly name: string
  readonly module: Module
}

/**
 * Marks each layer that follows a `partial` gather, which already sums the gradient of the layer's input.
 * If both summed it, the gradient would be too large by the number of ranks.
 *
 * @throws ERR_TSR_ARGUMENT when another kind of layer follows, whose input gradient is not partial
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
    // Without `layers` the order is unknown, so no next layer can be given.
    for (const [i, layer] of (row ?? inside).entries()) connect(layer, row?.[i + 1])
  }
}

const unnamed = (module: Module): NamedLayer => ({ name: 'another layer', module })

/** Checks that `next` may follow the layer, and marks it if the layer gathers `partial`. */
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
