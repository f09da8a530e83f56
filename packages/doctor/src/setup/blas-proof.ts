// Tests a BLAS library by computing with it: node blas-proof.js LIBRARY

import { openBlas } from '@tsrun/native'

/** Sizes m, n, k that exercise a BLAS's code paths for one row, one column and large products. */
const SIZES = [
  [1, 67, 33],
  [19, 1, 130],
  [33, 65, 129],
  [130, 140, 150],
] as const

const blas = openBlas(process.argv[2]!)
if (typeof blas === 'string') throw new Error(blas)
for (const [m, n, k] of SIZES) {
  const [a, b] = [integers(m * k), integers(k * n)]
  for (const form of [0, 1, 2, 3]) {
    const [transposeA, transposeB] = [form % 2 === 1, form > 1]
    // The distances between rows and between columns of each operand, in values.
    const [aRow, aColumn] = transposeA ? [1, m] : [k, 1]
    const [bRow, bColumn] = transposeB ? [1, k] : [n, 1]
    // A product must ignore the earlier contents of its output.
    const c = new Float32Array(m * n).fill(NaN)
    const [atA, atB, atC] = [a, b, c].map(blas.addressOf) as [number, number, number]
    const [aStride, bStride] = [aRow * aColumn, bRow * bColumn]
    blas.multiply(transposeA, transposeB, m, n, k, atA, aStride, atB, bStride, 0, atC, n)
    c.forEach((value, at) => {
      const [row, column] = [Math.floor(at / n), at % n]
      let sum = 0
      for (let i = 0; i < k; i++)
        sum += a[row * aRow + i * aColumn]! * b[i * bRow + column * bColumn]!
      if (value !== sum) {
        throw new Error(`a product of ${m} x ${k} and ${k} x ${n} has ${value} instead of ${sum}`)
      }
    })
  }
}
process.stdout.write(JSON.stringify({ kernels: blas.kernels }))

/** Makes small integers: the sum of their products is exact in any order. */
function integers(count: number): Float32Array {
  return Float32Array.from({ length: count }, (_, i) => Math.round(4 * Math.sin(i * i)))
}
