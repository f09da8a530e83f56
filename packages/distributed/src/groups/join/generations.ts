import { randomUUID } from 'node:crypto'
import { createLogger, Deadline, isTsrError, tsrError } from '@tsrun/core'
import { prefixStore, type Store } from '@tsrun/store'
import type { JoinOptions, ProcessGroup } from '../../process-group.ts'
import type { Rendezvous } from '../../transports/plug-in.ts'
import { waitOptions } from '../calls/arguments.ts'
import { createWorldGroup, type EngineProcessGroup } from '../group.ts'
import { readGeneration } from '../membership/published.ts'
import { announcePresence, endPresence } from '../membership/world.ts'
import { forgetEndpoint, joinedKey } from './endpoints.ts'
import { openRunner } from './open-runner.ts'
import type { InitSettings } from './options.ts'

/*
 * The generations of a world. `reconfigure` ends one generation and starts the next. Each has new
 * engines, connections and store keys, so old messages cannot be mistaken for new ones. The store
 * key `generation` holds the number of the newest generation. A process that left normally and
 * joins again also starts the next generation. If another process had the same rank in the newest
 * generation, this process replaces a lost rank and waits for the next generation.
 */

/** The worlds that this process has joined. */
export interface Joined {
  /** The incarnations that left normally. They do not count as lost ranks if they join again. */
  readonly departures: Set<string>
  /**
   * The group of all ranks of the newest world, until it is left. There are no references to older
   * worlds, so that they can be garbage-collected.
   */
  group?: EngineProcessGroup
}

/**
 * Joins the newest generation of the world, or the next one if this process replaces a lost rank.
 */
export async function joinGeneration(
  settings: InitSettings,
  rendezvous: Rendezvous,
  past: Joined,
): Promise<EngineProcessGroup> {
  const attempt = settings.environment?.restartCount ?? 0
  const root = prefixStore(rendezvous.store, `world/${attempt}/`)
  const { rank, worldSize, timeout, signal } = settings
  const { departures } = past
  let joined = 0
  let tried = 0
  let isLeaving = false

  const join = async (generation: number, options: JoinOptions): Promise<EngineProcessGroup> => {
    const store = storeOf(root, generation)
    tried = generation
    await forgetEndpoint(store, rank)
    await announcePresence(store, rank)
    const incarnation = randomUUID()
    const runner = await openRunner(settings, {
      from: rendezvous.from,
      generation,
      store,
      timeout: options.timeout ?? timeout,
      signal: options.signal,
      incarnation,
    })
    rendezvous.onConnected?.(runner.arena.heap.bytes)
    joined = generation
    const group = createWorldGroup({
      rank,
      worldSize,
      runner,
      store,
      timeout,
      generation,
      hasPresence: true,
      onLeft: async () => {
        // Only the newest generation may close the connection to the store.
        if (joined !== generation) return
        departures.add(incarnation)
        if (!rendezvous.isOwn) await endPresence(store, rank)
        await rendezvous.close()
      },
      rejoin: async (options) => await rejoin(group, options),
    })
    return group
  }

  const rejoin = async (old: EngineProcessGroup, options: JoinOptions): Promise<ProcessGroup> => {
    const refuse = (reason: string): Error =>
      tsrError('ERR_TSR_CANNOT_RECONFIGURE', { group: old.name, reason })
    if (isLeaving) throw refuse('it is under way already')
    if (joined !== old.generation) {
      throw refuse(`there is a newer world, of generation ${joined}`)
    }
    const wait = waitOptions(options, timeout)
    isLeaving = true
    try {
      const { runner } = old.world
      runner.failGroup(0, `rank ${rank} rebuilds the world`)
      await runner.close()
      await endPresence(storeOf(root, tried), rank)
      const next = await join(await beginNext(root, tried), wait)
      if (past.group === old) past.group = next
      return next
    } finally {
      isLeaving = false
    }
  }

  const generation = await chooseGeneration(settings, root, departures)
  past.group = await join(generation, { timeout, signal })
  return past.group
}

/** Creates the next generation, unless another rank already has. Returns its number. */
async function beginNext(root: Store, generation: number): Promise<number> {
  const { value } = await root.compareSet('generation', String(generation), String(generation + 1))
  const next = readGeneration(value)
  await root.set(begunKey(next), '')
  return next
}

function storeOf(root: Store, generation: number): Store {
  return generation === 0 ? root : prefixStore(root, `generation-${generation}/`)
}

function begunKey(generation: number): string {
  return `begun/${generation}`
}

async function newestGeneration(root: Store): Promise<number> {
  const { value } = await root.compareSet('generation', undefined, '0')
  return readGeneration(value)
}

/** Returns the number of the generation that this process joins. */
async function chooseGeneration(
  { rank, timeout, signal }: InitSettings,
  root: Store,
  departures: ReadonlySet<string>,
): Promise<number> {
  const deadline = Deadline.after(timeout)
  for (;;) {
    const newest = await newestGeneration(root)
    const store = storeOf(root, newest)
    if (!(await store.check([joinedKey(rank)]))) return newest
    // This process left normally, so it does not replace a lost rank.
    if (departures.has(new TextDecoder().decode(await store.get(joinedKey(rank))))) {
      return await beginNext(root, newest)
    }
    createLogger('distributed').info(
      { rank, generation: newest },
      'this rank was here before: waits until the others call reconfigure()',
    )
    const wait = { timeout: Math.max(1, deadline.remaining()), signal }
    await root.wait([begunKey(newest + 1)], wait).catch((cause: unknown) => {
      if (!isTsrError(cause) || cause.code !== 'ERR_TSR_STORE_TIMEOUT') throw cause
      const what = `rank ${rank}, which was in the job before: waiting for the others to call reconfigure()`
      throw tsrError('ERR_TSR_TIMEOUT', { what, milliseconds: timeout }, { cause })
    })
  }
}
