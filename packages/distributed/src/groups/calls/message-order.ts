import { ANY_SOURCE, type Operation } from '../../operation.ts'

/** Largest number of pairs of peer and tag. Messages of further pairs get no numbers. */
const MOST = 65_536

/** Number of tags: a key is peer * TAGS + tag. */
const TAGS = 2 ** 32

/**
 * Numbers the messages between two ranks of a group, for each direction and tag. Messages arrive in
 * the order in which they were sent, so a send and its receive get the same number.
 *
 * The returned function returns the number of the next message in its series, from 0, or undefined if
 * the number is unknown.
 */
export function createMessageOrder() {
  const sent = new Map<number, number>()
  const received = new Map<number, number>()
  /** Tags of receives from any source. The numbers of later receives are unknown. */
  const unknown = new Set<number>()
  return ({ name, peer, tag }: Operation): number | undefined => {
    if (name === 'recv' && peer === ANY_SOURCE) unknown.add(tag)
    if (name === 'recv' && unknown.has(tag)) return undefined
    const numbers = name === 'send' ? sent : received
    const key = peer * TAGS + tag
    const number = numbers.get(key) ?? 0
    if (number === 0 && numbers.size >= MOST) return undefined
    numbers.set(key, number + 1)
    return number
  }
}
