import { shown, tsrError } from '@tsrun/core'

/** Number `index` of `count` equal parts. */
export type Share = readonly [index: number, count: number]

/** Where a share of `length` things begins and ends. The parts differ by one at most. */
export function endsOfShare([index, count]: Share, length: number): [from: number, to: number] {
  return [Math.floor((index * length) / count), Math.floor(((index + 1) * length) / count)]
}

/** @throws ERR_TSR_ARGUMENT */
export function checkShare(name: string, share: Share): void {
  if (!Array.isArray(share)) {
    const expected = 'an index and a count, as [0, 1]'
    throw tsrError('ERR_TSR_ARGUMENT', { name, value: shown(share), expected })
  }
  const [index, count] = share
  const isShare = Number.isSafeInteger(index) && Number.isSafeInteger(count)
  if (isShare && index >= 0 && index < count) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name,
    value: `[${String(index)}, ${String(count)}]`,
    expected: 'an index below the count',
  })
}
