import { roomFor } from '../../../internals/distributed/groups.ts'

it.each([-1, 2 ** 24 + 1, 2 ** 31 - 1])(
  'receivers reject an object of %i bytes before they allocate memory',
  (bytes) => {
    const refusal = expect.objectContaining({ code: 'ERR_TSR_MESSAGE_TOO_LARGE' }) as Error
    expect(() => roomFor(Int32Array.of(bytes))).toThrow(refusal)
    expect(() => roomFor(Int32Array.of(4, bytes))).toThrow(refusal)
  },
)
