import { addLabel, host, tsrError, type TsrError } from '@tsrun/core'
import type { WorkTiming } from '../../process-group.ts'
import { detachedError, type Member } from './arguments.ts'
import type { Call } from './call.ts'
import { LocalWork, type FollowedWork, type Outcome } from './pending-work.ts'
import { bytesOf } from './staging.ts'

/** Longest timer of Node.js, in milliseconds. */
const LONGEST_TIMER = 2 ** 31 - 1

type Self = Pick<Member, 'name' | 'rank'>
type Half = SelfWork<unknown>

const NO_TABLE = new Float64Array(0)

/**
 * Delivers messages of a rank to itself. A send waits for the matching receive, or a receive for the
 * matching send. Messages with the same tag match in order. The message is then copied. The engine
 * is not involved.
 */
export function createSelfMessages(member: Self) {
  /** The unmatched sends or the unmatched receives of each tag. */
  const unmatched = new Map<number, Half[]>()
  let started = 0

  const match = (work: Half): void => {
    if (work.isCompleted()) return
    const tag = work.call.tag ?? 0
    const waiting = (unmatched.get(tag) ?? []).filter((half) => !half.isCompleted())
    const first = waiting[0]
    if (first !== undefined && first.call.name !== work.call.name) {
      waiting.shift()
      exchange(first, work)
    } else {
      waiting.push(work)
    }
    if (waiting.length > 0) unmatched.set(tag, waiting)
    else unmatched.delete(tag)
  }

  const exchange = (first: Half, second: Half): void => {
    const { name: group, rank } = member
    const { dtype, count } = first.call
    const isSame = dtype === second.call.dtype && count === second.call.count
    if (!isSame) {
      const facts = { group, sequence: second.sequence, rank, peer: rank }
      const mine = describeCall(second.call)
      const theirs = describeCall(first.call)
      second.end(tsrError('ERR_TSR_MISMATCH', { ...facts, mine, theirs }))
      first.end(tsrError('ERR_TSR_MISMATCH', { ...facts, mine: theirs, theirs: mine }))
      return
    }
    const [sent, received] = first.call.name === 'send' ? [first, second] : [second, first]
    const error = tryCopy(sent.call, received.call)
    sent.end(error)
    received.end(error)
  }

  return {
    /** @param timeout - time-out in milliseconds */
    start<T>(call: Call<T>, timeout: number): FollowedWork<T> {
      const work = new SelfWork(started++, member, call, timeout)
      match(work)
      return work
    },
    /** Fails all unmatched sends and receives, because the group is destroyed. */
    finish(): void {
      for (const half of [...unmatched.values()].flat()) {
        const facts = { operation: half.call.name, group: member.name }
        half.end(tsrError('ERR_TSR_GROUP_DESTROYED', facts))
      }
      unmatched.clear()
    },
  }
}

function tryCopy({ input }: Call<unknown>, { output, count }: Call<unknown>): TsrError | undefined {
  if (input?.length !== count || output?.length !== count) return detachedError('send')
  bytesOf(output).set(bytesOf(input))
  return undefined
}

export function describeCall({ name, dtype, count }: Call<unknown>): string {
  return `${name} ${dtype}[${count}]`
}

class SelfWork<T> extends LocalWork<T> {
  readonly sequence: number
  readonly call: Call<T>
  readonly #member: Self
  readonly #timer: NodeJS.Timeout | undefined

  constructor(sequence: number, member: Self, call: Call<T>, timeout: number) {
    super()
    this.sequence = sequence
    this.call = call
    this.#member = member
    const { signal } = call.options ?? {}
    if (signal?.aborted === true) {
      this.#abort()
      return
    }
    signal?.addEventListener('abort', this.#abort, { once: true })
    if (timeout > LONGEST_TIMER) return
    this.#timer = host.background(() => {
      this.end(
        tsrError('ERR_TSR_OPERATION_TIMEOUT', {
          ...this.#facts(),
          milliseconds: timeout,
          peers: `${member.rank} itself`,
        }),
      )
    }, timeout)
  }

  get timing(): WorkTiming | undefined {
    if (this.outcome === undefined) return undefined
    return { posted: this.called, started: this.completed, completed: this.completed }
  }

  protected keepAlive(): void {
    if (this.#timer !== undefined) host.foreground(this.#timer)
  }

  poll(): Outcome<T> | undefined {
    return this.outcome
  }

  /** Fails instead of blocking: while this rank is blocked, it cannot make the matching call. */
  protected block(): Outcome<T> {
    const { rank } = this.#member
    this.end(tsrError('ERR_TSR_SELF_SEND', { operation: this.call.name, rank }))
    return this.poll()!
  }

  end(error: TsrError | undefined): void {
    if (this.isCompleted()) return
    clearTimeout(this.#timer)
    const { options } = this.call
    options?.signal?.removeEventListener('abort', this.#abort)
    if (error !== undefined && options?.label !== undefined) addLabel(error, options.label)
    this.settle(error === undefined ? { value: this.call.resultOf?.(NO_TABLE) as T } : { error })
  }

  readonly #abort = (): void => {
    this.end(tsrError('ERR_TSR_OPERATION_ABORTED', this.#facts()))
  }

  #facts(): { rank: number; operation: string; group: string } {
    const { rank, name: group } = this.#member
    return { rank, operation: `${describeCall(this.call)} with itself`, group }
  }
}
