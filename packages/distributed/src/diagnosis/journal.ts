import { hostname } from 'node:os'
import { createLogger, monotonicNow, tsrError } from '@tsrun/core'
import {
  FLIGHT_FORMAT,
  FLIGHT_VERSION,
  writeFlightDump,
  type FlightGroup,
  type SpanRecorder,
  StatusSlot,
} from '@tsrun/telemetry'
import { callSite } from './call-site.ts'
import { FlightRing } from './flight-ring.ts'
import { LinkCounters } from './link-counters.ts'
import type { StatusPlace } from './status.ts'
import type { DiagnosisSettings } from './settings.ts'

/** Whose records they are. */
export interface JournalOwner {
  readonly rank: number
  readonly worldSize: number
  readonly settings: DiagnosisSettings
}

/** What the engine's thread needs to write in the same journal. */
export interface SharedJournal extends JournalOwner {
  readonly buffer: SharedArrayBuffer
  readonly counters: SharedArrayBuffer
  /** The status page, and the slot of this rank. */
  readonly page: StatusPlace | undefined
}

/**
 * The flight recorder of a rank: the last operations, always recorded, written to a file when
 * something fails. One object in the caller's thread and one in the engine's share its memory.
 */
export class Journal {
  readonly owner: JournalOwner
  readonly ring: FlightRing
  readonly counters: LinkCounters
  /** This rank's slot of the status page. */
  status: StatusSlot | undefined
  #place: StatusPlace | undefined
  /** Where operations that have ended are recorded as spans. */
  spans: SpanRecorder | undefined
  /** The groups of this rank by id. */
  readonly groups: Map<number, FlightGroup>
  #next = 1

  /** @param shared - the memory of the caller's journal, for the one of the engine's thread */
  constructor(
    owner: JournalOwner,
    groups = new Map<number, FlightGroup>(),
    shared?: Pick<SharedJournal, 'buffer' | 'counters'>,
  ) {
    this.owner = owner
    this.ring = new FlightRing(owner.settings.flightEntries, shared?.buffer)
    this.counters = new LinkCounters(owner.worldSize, shared?.counters)
    this.groups = groups
  }

  /** Takes this rank's place on the status page. */
  publishAt(place: StatusPlace | undefined): void {
    this.#place = place
    if (place !== undefined) this.status = new StatusSlot(place.buffer, place.index)
  }

  get shared(): SharedJournal {
    return {
      ...this.owner,
      buffer: this.ring.buffer,
      counters: this.counters.buffer,
      page: this.#place,
    }
  }

  /** Numbers the next operation. */
  number(label: string | undefined): number {
    const flight = this.#next++
    if (label !== undefined) this.ring.write(flight, 'label', label)
    if (this.owner.settings.detail) {
      const site = callSite()
      if (site !== undefined) this.ring.write(flight, 'site', site)
    }
    return flight
  }

  /** Writes the dump where failures go, if anywhere; the reason of the first time stays. */
  dumpFailure(reason: string): void {
    const { flightDirectory } = this.owner.settings
    if (flightDirectory === undefined) return
    try {
      this.#write(flightDirectory, this.ring.firstReason(reason))
    } catch (error) {
      const facts = { directory: flightDirectory, reason: (error as Error).message }
      createLogger('distributed').warn(facts, 'the flight recorder could not be written')
    }
  }

  /**
   * Writes the dump now.
   *
   * @returns the path of the file
   * @throws ERR_TSR_ARGUMENT when no folder is known, ERR_TSR_FLIGHT_DIRECTORY
   */
  dump(directory = this.owner.settings.flightDirectory): string {
    if (directory === undefined) {
      const expected = 'a folder, here or in TSRUN_FLIGHT_DIR'
      throw tsrError('ERR_TSR_ARGUMENT', { name: 'directory', value: 'undefined', expected })
    }
    try {
      return this.#write(directory, 'on request')
    } catch (cause) {
      const reason = (cause as Error).message
      throw tsrError('ERR_TSR_FLIGHT_DIRECTORY', { directory, reason }, { cause })
    }
  }

  #write(directory: string, reason: string): string {
    const { rank, worldSize, settings } = this.owner
    const { runId, restartCount } = settings
    return writeFlightDump(directory, {
      header: {
        format: FLIGHT_FORMAT,
        version: FLIGHT_VERSION,
        ...{ rank, worldSize, pid: process.pid, host: hostname(), runId, restartCount, reason },
        time: new Date().toISOString(),
        at: monotonicNow(),
        groups: [...this.groups.values()].map(({ id, name, ranks }) => ({ id, name, ranks })),
      },
      entries: this.ring.entries(),
    })
  }
}
