import { argumentError } from '@tsrun/core'
import { modulesOf, type Module } from '../../model/module.ts'
import { isColumnParallel } from './linear-layers.ts'

interface NamedLayer {
  readonly name: string
  readonly module: Module
}

/**
 * Marks each layer that follows a `partial` gather, which already sums the gradient of that layer's
 * input. If the layer summed it too, the gradient would be too large by a factor of the number of ranks.
 *
 * @throws ERR_TSR_ARGUMENT when the layer that follows is not column parallel, because its input
 *   gradient is then not partial
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
    // If the module does not list its `layers`, their order is unknown, so `next` is undefined.
    for (const [i, layer] of (row ?? inside).entries()) connect(layer, row?.[i + 1])
  }
}

const unnamed = (module: Module): NamedLayer => ({ name: 'another layer', module })

/** If a layer gathers with `partial`, checks that the layer `next` may follow, and marks `next`. */
function connect({ name, module }: NamedLayer, next: NamedLayer | undefined): void {
  if (!isColumnParallel(module) || module.gather !== 'partial') return
  const behind = next?.module
  if (behind !== undefined && isColumnParallel(behind) && behind.input === 'replicated') {
    behind.followPartial()
    return
  }
  throw argumentError(
    'plan',
    `gather: 'partial' for ${name}, followed by ${next?.name ?? 'an unknown layer'}`,
    "a columnParallel() layer directly after it, or gather: 'replicated'",
  )
}
