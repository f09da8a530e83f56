import { isLocal, type LocalSegment, type Segment } from '../../model/segment.ts'
import type { Module } from '../../model/module.ts'
import { modulesOf } from '../../model/module.ts'
import { blockingBackend } from '../blocking.ts'

/** Where `recordSegments` cuts a model: neighbours that need no other rank are one segment. */
export function segmentsOf(model: Module): readonly Segment[] {
  const segments = cut(model, 'the model')
  // by its own passes, where it has them
  return segments.every(isLocal) ? [model] : segments.reduce<readonly Segment[]>(join, [])
}

/**
 * A module whose collectives are inside of its passes: nothing can be between them.
 *
 * @throws ERR_TSR_BACKEND where passes cannot wait
 */
export function inOnePiece(module: Module, name: string): readonly Segment[] {
  blockingBackend(name)
  return [module]
}

function cut(module: Module, name: string): readonly Segment[] {
  if (module.segments !== undefined) return module.segments()
  const { children = {}, layers } = module
  if (layers !== undefined) {
    const names = new Map(Object.entries(children).map(([key, child]) => [child, key]))
    return layers.flatMap((layer) => cut(layer, names.get(layer) ?? 'a layer'))
  }
  // no chain: a block with branches, for example
  const isShared = Array.from(modulesOf(module)).some((inner) => 'segments' in inner.module)
  return isShared ? inOnePiece(module, name) : [module]
}

function join(segments: readonly Segment[], next: Segment): readonly Segment[] {
  const last = segments.at(-1)
  if (!isLocal(next)) return [...segments, next]
  if (last === undefined || !isLocal(last)) return [...segments, asLocal(next)]
  return [
    ...segments.slice(0, -1),
    {
      parameters: [...new Set([...last.parameters, ...next.parameters])],
      forward: (x) => next.forward(last.forward(x)),
    },
  ]
}

/** On the tape like all of the model in one piece, and to the same bits: without passes of its own. */
function asLocal(segment: LocalSegment): LocalSegment {
  return { parameters: segment.parameters, forward: (x) => segment.forward(x) }
}
