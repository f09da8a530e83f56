import { dtypeOf, dtypesOf, type DType } from './dtype.ts'

interface Block {
  readonly end: number
  readonly dtype: DType
}

/** Of each memory, the blocks that were allocated for a dtype that their array type does not tell. */
const blocks = new WeakMap<ArrayBufferLike, Map<number, Block>>()

/** Remembers the dtype of a new array for it and all its parts. */
export function rememberDType(view: ArrayBufferView, dtype: DType): void {
  if (dtypeOf(view) === dtype) return
  const { buffer, byteOffset, byteLength } = view
  const known = blocks.get(buffer) ?? new Map<number, Block>()
  blocks.set(buffer, known)
  known.set(byteOffset, { end: byteOffset + byteLength, dtype })
}

/** To be called before the memory is used for something else. */
export function forgetDType({ buffer, byteOffset }: ArrayBufferView): void {
  blocks.get(buffer)?.delete(byteOffset)
}

/** The dtype that `value`, or what it is a part of, was allocated for; else that of its type. */
export function knownDTypeOf(value: unknown): DType | undefined {
  const usual = dtypeOf(value)
  const candidates = dtypesOf(value)
  if (!ArrayBuffer.isView(value) || candidates.length < 2) return usual
  const { byteOffset, byteLength } = value
  for (const [at, { end, dtype }] of blocks.get(value.buffer) ?? []) {
    const isPart = byteOffset >= at && byteOffset + byteLength <= end
    if (isPart && candidates.includes(dtype)) return dtype
  }
  return usual
}
