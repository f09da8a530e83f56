import { tsrError } from '@tsrun/core'
import type { Module } from '../../model/module.ts'
import { modulesOf } from '../../model/module.ts'
import { isColumnParallel } from './layers.ts'

interface NamedLayer {
  readonly name: string
  readonly module: Module
}

/**
 * Tells the layers behind those that gather `partial` that the gradients of their inputs are summed
 * there: both together would count them once a rank.
 *
 * @throws ERR_TSR_ARGUMENT where another layer is behind one of them: its gradient is whole already
 */
export function connectPartialGathers(model: Module): void {
  for (const { name, module } of [{ name: '', module: model }, ...modulesOf(model)]) {
    const { children = {}, layers } = module
    const prefix = name === '' ? '' : `${name}.`
    const inside = Object.entries(children).map(([key, child]) => ({
      name: `${prefix}${key}`,
      module: child,
    }))
    // only where the order is known can one be directly behind the other
    if (layers === undefined) for (const each of inside) connect(each, undefined)
    else
      connectRow(
        layers.map((layer) => inside.find((each) => each.module === layer) ?? unnamed(layer)),
      )
  }
}

const unnamed = (module: Module): NamedLayer => ({ name: 'another layer', module })

/** The same, for layers one behind the other. */
export function connectRow(row: readonly NamedLayer[]): void {
  row.forEach((layer, i) => {
    connect(layer, row[i + 1])
  })
}

/** Whether a layer may be where it is, and what the next one has to know of it. */
export function connect({ name, module }: NamedLayer, next: NamedLayer | undefined): void {
  if (!isColumnParallel(module) || module.gather !== 'partial') return
  const behind = next?.module
  if (behind !== undefined && isColumnParallel(behind) && behind.input === 'replicated') {
    behind.isBehindPartial = true
    return
  }
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'plan',
    value: `gather: 'partial' for ${name}, in front of ${next?.name ?? 'whatever follows'}`,
    expected: "a columnParallel() layer directly behind it, or gather: 'replicated'",
  })
}
