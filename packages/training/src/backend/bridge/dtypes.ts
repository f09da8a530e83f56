import { tsrError } from '@tsrun/core'
import { sizeOf } from '../shape.ts'
import type { HostArray, HostArrays, HostDType } from './bridge.ts'

const arrays: { readonly [D in HostDType]: new (length: number) => HostArrays[D] } = {
  float32: Float32Array,
  int32: Int32Array,
  bool: Uint8Array,
}

export function newArray<D extends HostDType>(shape: readonly number[], dtype: D): HostArrays[D] {
  return new arrays[dtype](sizeOf(shape))
}

/** @throws ERR_TSR_ARGUMENT unless `array` holds as many values of `dtype` as `shape` says */
export function checkArray(
  name: string,
  array: unknown,
  shape: readonly number[],
  dtype: string,
): void {
  if (!Object.hasOwn(arrays, dtype)) {
    const expected = `one of ${Object.keys(arrays).join(', ')}`
    throw tsrError('ERR_TSR_ARGUMENT', { name: `the dtype of ${name}`, value: dtype, expected })
  }
  // by its name: an array of another realm is no instance of this one's
  const wanted = arrays[dtype as HostDType].name
  const length = sizeOf(shape)
  const found = describe(array)
  if (found === `${wanted}[${String(length)}]`) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name,
    value: found,
    expected: `${wanted}[${String(length)}], for a ${dtype} tensor of shape [${shape.join(', ')}]`,
  })
}

function describe(array: unknown): string {
  if (!ArrayBuffer.isView(array)) return typeof array
  const { [Symbol.toStringTag]: kind, length } = array as ArrayBufferView & Partial<HostArray>
  return `${kind ?? ''}[${String(length ?? array.byteLength)}]`
}
