import { EAGER_LIMIT } from './engine-memory.ts'
import { frameKinds, spaces, type FrameHeader } from './frame.ts'
import { LARGEST_GROUP } from '../operation.ts'

const known: ReadonlySet<number> = new Set(Object.values(frameKinds))

/** Frames whose payload is stored before it is looked at are small; no kind and space but ours. */
export function isPlausible({ kind, space, group, bytes }: FrameHeader): boolean {
  const isStored =
    kind === frameKinds.eager || kind === frameKinds.fault || kind === frameKinds.notice
  return (
    known.has(kind) &&
    (space === spaces.collective || space === spaces.message) &&
    group <= LARGEST_GROUP &&
    (!isStored || bytes <= EAGER_LIMIT)
  )
}
