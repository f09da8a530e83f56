import { generator } from '../random/generator.ts'

/** The numbers 0 .. length - 1 in an order that `name` and `seed` decide (Fisher & Yates). */
export function permutation(length: number, name: string, seed: number): Int32Array {
  const next = generator(name, seed)
  const order = Int32Array.from({ length }, (_, i) => i)
  for (let i = length - 1; i > 0; i--) {
    // The bias of the remainder is below length / 2^32.
    const j = next() % (i + 1)
    const swapped = order[i]!
    order[i] = order[j]!
    order[j] = swapped
  }
  return order
}
