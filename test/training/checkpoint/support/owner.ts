import type { Part, Piece, PieceOwner } from '@tsrun/training'
import { copyCommon } from '../../../internals/training.ts'

/** Holds these parts of tensors whose values count up from `first` in row-major order. */
export function countingOwner(parts: readonly Part[], first = 0): PieceOwner & { held: Piece[] } {
  const owner = {
    held: parts.map((part) => cut(part, first)),
    pieces: () => owner.held,
    parts: () => parts,
    load(pieces: readonly Piece[]) {
      owner.held = [...pieces]
    },
  }
  return owner
}

export function cut(part: Part, first = 0): Piece {
  const { name, shape, box, range } = part
  const size = shape.reduce((a, b) => a * b, 1)
  const whole = { name, shape, values: Float32Array.from({ length: size }, (_, i) => first + i) }
  const extent = box?.extent ?? shape
  const inBox = extent.reduce((a, b) => a * b, 1)
  const values = new Float32Array(inBox)
  copyCommon(whole, { name, shape, ...(box && { box }), values })
  return { ...part, values: range === undefined ? values : values.slice(...range) }
}
