import { ANY_SOURCE, type Operation } from '../../operation.ts'

/** Tags and peers that are known at one time; messages of others get no numbers. */
const MOST = 65_536

/** What tags need in a number that is made of a peer and a tag. */
const TAGS = 2 ** 32

/**
 * Numbers the messages of a group between the same two ranks, in one direction and with one tag. They
 * arrive in the order in which they are sent, so that a send and its receive get the same number.
 */
export class MessageOrder {
  readonly #sent = new Map<number, number>()
  readonly #received = new Map<number, number>()
  /** Tags of receives from any rank: it is not known which message each of them has taken. */
  readonly #unknown = new Set<number>()

  /** The number of the message that is started now, from 0; undefined if it is not known. */
  next({ name, peer, tag }: Pick<Operation, 'name' | 'peer' | 'tag'>): number | undefined {
    if (name === 'recv' && peer === ANY_SOURCE) this.#unknown.add(tag)
    if (name === 'recv' && this.#unknown.has(tag)) return undefined
    const numbers = name === 'send' ? this.#sent : this.#received
    const key = peer * TAGS + tag
    const number = numbers.get(key) ?? 0
    if (number === 0 && numbers.size >= MOST) return undefined
    numbers.set(key, number + 1)
    return number
  }
}
