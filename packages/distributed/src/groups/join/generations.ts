import { randomUUID } from 'node:crypto'
import { createLogger, Deadline, isTsrError, tsrError } from '@tsrun/core'
import { prefixStore, type Store } from '@tsrun/store'
import type { JoinOptions } from '../../group-relations.ts'
import { leaveMpiAtExit } from '../../mpi/process.ts'
import type { ProcessGroup } from '../../process-group.ts'
import { waitOptions } from '../calls/arguments.ts'
import { forgetEndpoint } from './endpoints.ts'
import type { InitSettings } from './options.ts'
import { openHost } from './open-runner.ts'
import { announcePresence, endPresence } from '../membership/presence.ts'
import { createWorldGroup } from '../world-group.ts'
import { worldOf } from '../membership/world.ts'

/*
 * A world has lives: `reconfigure` ends one and begins the next, with new engines, connections and
 * keys in the store, so that nothing of the old one can be taken for the new. `life` in the store is
 * the number of the newest. A process that has left in order and joins again begins the next one, too.
 * A process whose rank another process had in that one takes the place of a lost rank: it waits.
 */

/** A store and how to let go of it. */
export interface Rendezvous {
  readonly store: Store
  /** Whether `close` ends the connection, and with it what the store keeps for it. */
  readonly isOwn: boolean
  close(): Promise<void>
}

/** One life of the world, and how long joining it may take. */
export interface Life {
  readonly generation: number
  /** With the keys of this life. */
  readonly store: Store
  /** Milliseconds. */
  readonly timeout: number
  readonly signal: AbortSignal | undefined
  /** Of this process in this life: what `joinedKey` is set to. */
  readonly incarnation: string
}

/** Set by a rank that knows all others: from now on it counts when it is lost. */
export function joinedKey(rank: number): string {
  return `joined/${rank}`
}

/** Joins the newest life of the world, or the next where this process replaces a lost rank. */
export async function joinFirstLife(
  settings: InitSettings,
  rendezvous: Rendezvous,
): Promise<ProcessGroup> {
  const generations = settings.environment?.restartCount ?? 0
  const root = prefixStore(rendezvous.store, `world/${generations}/`)
  const place = new Place(settings, rendezvous, root)
  const { timeout, signal } = settings
  return await place.join(await chooseLife(settings, root), { timeout, ...(signal && { signal }) })
}

/** Incarnations of this process that have left in order: they do not wait to be put back. */
const departed = new Set<string>()

/** What this process is in the world, over all of its lives. */
class Place {
  readonly #settings: InitSettings
  readonly #rendezvous: Rendezvous
  readonly #root: Store
  /** The life of the newest group that was made. */
  #holder = 0
  /** The newest life that this process has tried to join. */
  #tried = 0
  #isLeaving = false

  constructor(settings: InitSettings, rendezvous: Rendezvous, root: Store) {
    this.#settings = settings
    this.#rendezvous = rendezvous
    this.#root = root
  }

  async join(generation: number, { timeout, signal }: JoinOptions): Promise<ProcessGroup> {
    const settings = this.#settings
    const { rank, worldSize } = settings
    const store = lifeStore(this.#root, generation)
    this.#tried = generation
    await forgetEndpoint(store, rank)
    await announcePresence(store, rank)
    const incarnation = randomUUID()
    const life = {
      generation,
      store,
      timeout: timeout ?? settings.timeout,
      signal,
      incarnation,
    }
    const host = await openHost(settings, life)
    if (settings.transport === 'mpi') leaveMpiAtExit(host.arena.heap.bytes)
    this.#holder = generation
    const group = createWorldGroup({
      rank,
      worldSize,
      host,
      store,
      timeout: settings.timeout,
      generation,
      hasPresence: true,
      onDestroyed: async () => {
        // an older group than the newest has nothing to let go of
        if (this.#holder !== generation) return
        departed.add(incarnation)
        if (!this.#rendezvous.isOwn) await endPresence(store, rank)
        await this.#rendezvous.close()
      },
      rejoin: async (options) => await this.#rejoin(group, options),
    })
    return group
  }

  async #rejoin(old: ProcessGroup, options: JoinOptions): Promise<ProcessGroup> {
    const refuse = (reason: string): Error =>
      tsrError('ERR_TSR_CANNOT_RECONFIGURE', { group: old.name, reason })
    if (this.#isLeaving) throw refuse('it is under way already')
    if (this.#holder !== old.generation) {
      throw refuse(`there is a newer world, of generation ${this.#holder}`)
    }
    const wait = waitOptions(options, this.#settings.timeout)
    this.#isLeaving = true
    try {
      await leave(old, this.#settings.rank)
      const generation = await this.#openNext()
      return await this.join(generation, wait)
    } finally {
      this.#isLeaving = false
    }
  }

  /** The number of the next life: the first who asks begins it, all others find it. */
  async #openNext(): Promise<number> {
    const mine = this.#tried
    const store = lifeStore(this.#root, mine)
    await endPresence(store, this.#settings.rank)
    return await beginNext(this.#root, mine)
  }
}

/** The number of the life after one. */
async function beginNext(root: Store, generation: number): Promise<number> {
  const { value } = await root.compareSet('life', String(generation), String(generation + 1))
  const next = Number(new TextDecoder().decode(value))
  await root.set(begunKey(next), '')
  return next
}

/** Ends the old life of this process: nothing of it is sent or taken any more. */
async function leave(old: ProcessGroup, rank: number): Promise<void> {
  const { host } = worldOf(old)
  host.failGroup(0, `rank ${rank} makes the world anew`)
  await host.close()
}

function lifeStore(root: Store, generation: number): Store {
  return generation === 0 ? root : prefixStore(root, `life-${generation}/`)
}

function begunKey(generation: number): string {
  return `begun/${generation}`
}

async function newestLife(root: Store): Promise<number> {
  const { value } = await root.compareSet('life', undefined, '0')
  return Number(new TextDecoder().decode(value))
}

async function chooseLife({ rank, timeout, signal }: InitSettings, root: Store): Promise<number> {
  const deadline = Deadline.after(timeout)
  for (;;) {
    const newest = await newestLife(root)
    const store = lifeStore(root, newest)
    if (!(await store.check([joinedKey(rank)]))) return newest
    // all have left, or are about to, and join again: a life of which nobody is lost
    if (departed.has(new TextDecoder().decode(await store.get(joinedKey(rank))))) {
      return await beginNext(root, newest)
    }
    createLogger('distributed').info(
      { rank, generation: newest },
      'this rank was here before: waits until the others call reconfigure()',
    )
    const wait = { timeout: Math.max(1, deadline.remaining()), ...(signal && { signal }) }
    await root.wait([begunKey(newest + 1)], wait).catch((cause: unknown) => {
      if (!isTsrError(cause) || cause.code !== 'ERR_TSR_STORE_TIMEOUT') throw cause
      const what = `rank ${rank}, which was in the job before: waiting for the others to call reconfigure()`
      throw tsrError('ERR_TSR_TIMEOUT', { what, milliseconds: timeout }, { cause })
    })
  }
}
