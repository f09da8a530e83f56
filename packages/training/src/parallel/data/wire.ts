export const wireFormats = ['float32', 'float16', 'bfloat16'] as const

/** The form in which gradients travel: 16-bit forms halve the bytes, and lose precision. */
export type WireFormat = (typeof wireFormats)[number]
