import { transposeInto } from '../../../packages/training/src/backend/transpose.ts'

it.each([
  [1, 1],
  [1, 9],
  [9, 1],
  [8, 8],
  [7, 5],
  [17, 3],
  [16, 30],
])('transposes %i x %i', (rows, columns) => {
  const from = Float32Array.from({ length: rows * columns }, (_, i) => i)
  const to = new Float32Array(rows * columns)
  transposeInto(to, from, rows, columns)
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      expect(to[column * rows + row]).toBe(row * columns + column)
    }
  }
})
