import { argumentError, createLogger, host, monotonicNow, tsrError } from '@tsrun/core'
import { LINK_NUMBERS, linkNumber, type StatusSlot } from '../record/status-slot.ts'
import { sharedBuffer } from '../arena/heap.ts'
import type { Link } from '../engine/messages/link.ts'
import type { SpanRecorder } from '../record/spans.ts'
import {
  FLIGHT_FORMAT,
  FLIGHT_VERSION,
  writeFlightDump,
  type FlightDump,
  type FlightGroup,
} from '../record/flight-records.ts'
import { bytesOf, joint, LARGEST_GROUP, type Operation } from '../operation.ts'
import type { Ticket } from '../ticket.ts'
import { callSite } from './call-sites.ts'
import { createFlightRecorder, type FlightRecorder } from './flight-recorder.ts'
import type { DiagnosisSettings } from './settings.ts'

/** The rank that a journal belongs to. */
export interface JournalOwner {
  readonly rank: number
  readonly worldSize: number
  readonly settings: DiagnosisSettings
}

/** The parts of a journal that the engine's thread needs, to write to the same memory. */
export interface SharedJournal extends JournalOwner {
  readonly buffer: SharedArrayBuffer
  readonly counters: Float64Array
  /** The mapped status page, and the index of this rank's slot. */
  readonly page: Pick<StatusSlot, 'buffer' | 'index'> | undefined
}

/**
 * The parts of a journal. On the engine's thread, `buffer` and `counters` are the memory of the
 * calling thread's journal.
 */
interface JournalParts extends Partial<Pick<SharedJournal, 'buffer' | 'counters'>> {
  /** This rank's slot of the status page. If defined, it also holds the link counters. */
  readonly status?: StatusSlot | undefined
  /** The recorder of the trace that the launcher asked for. */
  readonly traced?: SpanRecorder | undefined
  /** The generation of the world; default 0. */
  readonly generation?: number
}

/**
 * The records of a rank: its flight recorder and its link counters. Operations are always recorded
 * and are written to a file on failure. The calling thread and the engine's thread have one object
 * each, which share memory.
 */
export class Journal {
  readonly owner: JournalOwner
  readonly recorder: FlightRecorder
  readonly counters: LinkCounters
  readonly status: StatusSlot | undefined
  /** The recorder for the spans of completed operations. */
  spans: SpanRecorder | undefined
  readonly #traced: SpanRecorder | undefined
  readonly groups = new Map<number, FlightGroup>()
  #next = 1
  readonly generation: number

  constructor(
    owner: JournalOwner,
    { status, traced, generation = 0, buffer, counters }: JournalParts = {},
  ) {
    this.owner = owner
    this.status = status
    this.spans = this.#traced = traced
    this.generation = generation
    const { worldSize, settings } = owner
    this.recorder = createFlightRecorder(settings.flightEntries, buffer)
    const numbers = counters ?? status?.links(worldSize)?.fill(0)
    this.counters = new LinkCounters(worldSize, numbers)
  }

  /** Sets the recorder for spans. Without one, spans go to the trace, if there is one. */
  record(recorder: SpanRecorder | undefined): void {
    this.spans = recorder ?? this.#traced
  }

  get shared(): SharedJournal {
    const { status } = this
    return {
      ...this.owner,
      buffer: this.recorder.buffer,
      counters: this.counters.memory,
      page: status && { buffer: status.buffer, index: status.index },
    }
  }

  /** Returns the number of the next operation, and records the label and call site under it. */
  number(label: string | undefined): number {
    const flight = this.#next++
    if (label !== undefined) this.recorder.write(flight, 'label', label)
    if (this.owner.settings.detail) {
      const site = callSite()
      if (site !== undefined) this.recorder.write(flight, 'site', site)
    }
    return flight
  }

  /** Writes a dump, if a folder is set. Later dumps repeat the reason of the first. */
  dumpFailure(reason: string, groups: ReadonlyMap<number, FlightGroup> = this.groups): void {
    const { flightDirectory } = this.owner.settings
    if (flightDirectory === undefined) return
    const hasReason = this.recorder.hasReason()
    try {
      writeFlightDump(flightDirectory, this.read(this.recorder.firstReason(reason), groups))
    } catch (error) {
      if (hasReason) return
      const facts = { directory: flightDirectory, reason: (error as Error).message }
      createLogger('distributed').warn(facts, 'the flight recorder could not be written')
    }
  }

  /**
   * Writes a dump.
   *
   * @returns the path of the file
   * @throws ERR_TSR_ARGUMENT if no folder is known, ERR_TSR_FLIGHT_DIRECTORY
   */
  dump(directory = this.owner.settings.flightDirectory): string {
    if (directory === undefined) {
      throw argumentError('directory', 'undefined', 'a folder, here or in TSRUN_FLIGHT_DIR')
    }
    try {
      return writeFlightDump(directory, this.read('on request'))
    } catch (cause) {
      const reason = (cause as Error).message
      throw tsrError('ERR_TSR_FLIGHT_DIRECTORY', { directory, reason }, { cause })
    }
  }

  /** Returns the contents of a dump. */
  read(reason: string, groups: ReadonlyMap<number, FlightGroup> = this.groups): FlightDump {
    const { rank, worldSize, settings } = this.owner
    const { runId, restartCount } = settings
    return {
      header: {
        format: FLIGHT_FORMAT,
        version: FLIGHT_VERSION,
        rank,
        worldSize,
        pid: host.processId,
        host: host.name(),
        runId,
        restartCount,
        reason,
        time: new Date().toISOString(),
        at: monotonicNow(),
        groups: [...groups.values()].map(({ id, name, ranks }) => ({ id, name, ranks })),
      },
      entries: this.recorder.entries(),
    }
  }
}

/**
 * Records a span of an operation that this thread has just found completed. The span's `waited` is
 * the time until the operation's first message moved.
 *
 * @param label - the label of the call
 */
export function recordSpan(
  { operation, order }: { readonly operation: Operation; readonly order: number | undefined },
  owner: {
    readonly ranks: readonly number[]
    readonly runner: { readonly journal: Pick<Journal, 'spans' | 'generation'> }
  },
  ticket: Ticket,
  label: string | undefined,
): void {
  const { spans, generation } = owner.runner.journal
  const timing = spans && ticket.timing
  if (spans === undefined || timing === undefined) return
  const { name, peer } = operation
  const kind = name === 'send' || name === 'recv' ? name : 'collective'
  const { posted, started, completed } = timing
  const isMessage = kind !== 'collective'
  spans.record(kind, posted, completed, {
    name: label ?? name,
    bytes: bytesOf(operation),
    peer: isMessage ? owner.ranks[peer] : undefined,
    tag: isMessage ? operation.tag : undefined,
    waited: started - posted,
    noticed: Math.max(0, monotonicNow() - completed),
    // Each generation of the world numbers its groups from 0.
    group: operation.group + generation * (LARGEST_GROUP + 1),
    sequence: isMessage ? order : operation.sequence,
    joint: isMessage ? undefined : Number(joint.has(name)),
  })
}

/** Blocks until an operation has completed, and records the wait as a span. */
export function blockUntilSettled(
  recorder: SpanRecorder | undefined,
  ticket: Ticket,
  name: string,
): void {
  if (ticket.isSettled) return
  if (recorder === undefined) {
    ticket.block(name)
    return
  }
  const start = monotonicNow()
  ticket.block(name)
  const end = monotonicNow()
  const waited = (ticket.timing?.started ?? end) - start
  recorder.record('wait', start, end, { name, waited: Math.min(Math.max(0, waited), end - start) })
}

/** The traffic of the link to one peer. */
export interface LinkStatistics {
  /** Rank of the peer in the group. */
  readonly peer: number
  /** Rank of the peer in the world. */
  readonly worldRank: number
  readonly transport: string
  /** Bytes of payloads and frame headers, including payloads that the peer copied from shared memory. */
  readonly bytesSent: number
  readonly bytesReceived: number
  readonly framesSent: number
}

/** The counters of all links, in memory shared by the calling thread and the engine's thread. */
class LinkCounters {
  readonly memory: Float64Array

  /** @param memory - shared memory of the counters; default: new memory */
  constructor(
    worldSize: number,
    memory: Float64Array = new Float64Array(sharedBuffer(worldSize * LINK_NUMBERS * 8)),
  ) {
    this.memory = memory
  }

  /** Publishes the counters. Called on the engine's thread, which owns the links. */
  publish(links: readonly (Link | undefined)[]): void {
    for (let peer = 0; peer < links.length; peer++) {
      const link = links[peer]
      if (link === undefined) continue
      const at = peer * LINK_NUMBERS
      const { traffic, mail } = link
      const [frames = 0, bytes = 0] = mail?.outgoing.traffic ?? []
      this.memory[at + linkNumber.bytesSent] = traffic.bytesSent + bytes
      this.memory[at + linkNumber.bytesReceived] =
        traffic.bytesReceived + (mail?.incoming.traffic[1] ?? 0)
      this.memory[at + linkNumber.framesSent] = traffic.framesSent + frames
      this.memory[at + linkNumber.sharesMemory] = link.sharesMemory ? 1 : 0
    }
  }

  /** @param transport - name of the transport of links that share no memory */
  read(worldRank: number, peer: number, transport: string): LinkStatistics {
    const of = (name: keyof typeof linkNumber): number =>
      this.memory[worldRank * LINK_NUMBERS + linkNumber[name]]!
    return {
      peer,
      worldRank,
      transport: of('sharesMemory') === 1 ? 'shared-memory' : transport,
      bytesSent: of('bytesSent'),
      bytesReceived: of('bytesReceived'),
      framesSent: of('framesSent'),
    }
  }
}
