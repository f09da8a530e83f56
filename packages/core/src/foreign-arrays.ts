import { types } from 'node:util'
import type { addExtension } from 'msgpackr'

const EXTENSION_TYPE = 0x54

const constructors = {
  Int8Array,
  Uint8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
} as const

const TypedArray = Object.getPrototypeOf(Uint8Array) as { readonly prototype: object }

/**
 * Typed arrays of another realm (a `vm` context, a test runner): msgpackr recognizes its own
 * realm's with `instanceof` and would send these as plain objects. They arrive as the reader's own.
 */
const ForeignTypedArray = Object.defineProperty(() => undefined, Symbol.hasInstance, {
  value: (value: unknown) =>
    types.isTypedArray(value) && !Object.prototype.isPrototypeOf.call(TypedArray.prototype, value),
})

export function keepForeignArrays(add: typeof addExtension): void {
  add({
    Class: ForeignTypedArray,
    type: EXTENSION_TYPE,
    write: (array: NodeJS.TypedArray) => [
      array[Symbol.toStringTag],
      Buffer.from(array.buffer, array.byteOffset, array.byteLength),
    ],
    read: ([name, bytes]: [keyof typeof constructors, Uint8Array]) =>
      new constructors[name](new Uint8Array(bytes).buffer),
  })
}
