/** The values of 16-bit floats, from their bits. */
export function widen(dtype: 'F16' | 'BF16', halves: Uint16Array): Float32Array {
  const floats = new Float32Array(halves.length)
  if (dtype === 'BF16') {
    const bits = new Uint32Array(floats.buffer)
    for (let i = 0; i < bits.length; i++) bits[i] = halves[i]! << 16
    return floats
  }
  float16 ??= Float32Array.from({ length: 1 << 16 }, (_, half) => valueOf(half))
  for (let i = 0; i < floats.length; i++) floats[i] = float16[halves[i]!]!
  return floats
}

/** The value of each float16 that there is. */
let float16: Float32Array | undefined

function valueOf(half: number): number {
  const sign = half & 0x8000 ? -1 : 1
  const exponent = (half >>> 10) & 31
  const fraction = half & 1023
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}
