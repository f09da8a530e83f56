/** The largest number of elements of the staging array; larger tensors get a new array. */
const MOST_STAGED = 16 * 1024 * 1024

/** An array that is reused to fill new tensors. Allocating a new array would also clear it. */
export function stagingArray() {
  let array = new Float32Array(0)
  let isInUse = false
  return {
    /** Whether the staging array can hold `size` values and no caller on the stack uses it. */
    isFreeFor: (size: number) => !isInUse && size <= MOST_STAGED,

    /** Returns the `size` values that `fill` writes. They are valid until the next call. */
    filled(size: number, fill: (values: Float32Array) => void) {
      if (array.length < size) array = new Float32Array(size)
      const values = array.subarray(0, size)
      isInUse = true
      try {
        fill(values)
      } finally {
        isInUse = false
      }
      return values
    },
  }
}
