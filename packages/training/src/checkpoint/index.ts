export {
  partOfParameter,
  partSize,
  stateName,
  type Box,
  type Part,
  type Piece,
  type PieceOwner,
  type PieceValues,
} from './piece.ts'
