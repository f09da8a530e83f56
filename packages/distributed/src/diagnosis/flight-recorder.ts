import { errorTable, type TsrErrorCode } from '@tsrun/core'
import { flightStates, type FlightEntry, type FlightState } from '../record/flight-records.ts'
import { sharedBuffer } from '../arena/heap.ts'
import {
  bytesOf,
  describeFingerprint,
  nameOfFingerprint,
  type Fingerprint,
  type Operation,
} from '../operation.ts'

/** Special values of `peer`. NO_PEER is for collectives, ANY_PEER is for `recv` from any source. */
export const NO_PEER = -1
export const ANY_PEER = -2

/** Index of each number in an entry. Times are from `monotonicNow()`. */
const field = {
  number: 0,
  group: 1,
  sequence: 2,
  kind: 3,
  root: 4,
  count: 5,
  /** World rank of the other end of a message, ANY_PEER or NO_PEER. */
  peer: 6,
  tag: 7,
  bytes: 8,
  posted: 9,
  started: 10,
  completed: 11,
  state: 12,
  /** Index in the error table; -1 means no error. */
  error: 13,
  isReceive: 14,
} as const
const FIELDS = 15

/** Bytes of each text of an entry. */
const textBytes = { label: 128, site: 192, peers: 64 } as const
type TextName = keyof typeof textBytes
const textNames = Object.keys(textBytes) as TextName[]
const REASON_BYTES = 512

const stateCodes = Object.fromEntries(flightStates.map((state, code) => [state, code])) as Readonly<
  Record<FlightState, number>
>
const codes = Object.keys(errorTable) as TsrErrorCode[]
const encoder = new TextEncoder()
const decoder = new TextDecoder()

export type FlightRecorder = ReturnType<typeof createFlightRecorder>

/**
 * The last operations of a rank, in memory shared by the calling thread and the engine's thread.
 * The calling thread numbers the operations and writes their labels; the thread that runs them
 * writes everything else. Recording allocates nothing.
 */
export function createFlightRecorder(capacity: number, buffer = sharedBuffer(sizeOf(capacity))) {
  const numbers = new Float64Array(buffer, 0, capacity * FIELDS)
  let end = numbers.byteLength
  const columns = Object.fromEntries(
    textNames.map((name) => {
      /** Two numbers for each entry: the number of the operation, and the length of its text. */
      const marks = new Float64Array(buffer, end, 2 * capacity)
      const texts = new Uint8Array(buffer, end + marks.byteLength, capacity * textBytes[name])
      end += marks.byteLength + texts.length
      return [name, { marks, texts }] as const
    }),
  ) as Readonly<Record<TextName, { readonly marks: Float64Array; readonly texts: Uint8Array }>>
  const reasonBytes = new Uint8Array(buffer, end, REASON_BYTES)
  const scratch = new Uint8Array(Math.max(REASON_BYTES, ...Object.values(textBytes)))

  const slotOf = (flight: number): number => flight % capacity

  /** Encodes a text by a copy, as browsers cannot encode into shared memory. Returns its length. */
  const encodeInto = (text: string, room: Uint8Array): number => {
    const { written } = encoder.encodeInto(text, scratch.subarray(0, room.length))
    room.set(scratch.subarray(0, written))
    return written
  }

  /** Returns the label, call site or peers of an operation; undefined once its entry is overwritten. */
  const textOf = (flight: number, name: TextName): string | undefined => {
    const slot = slotOf(flight)
    const { marks, texts } = columns[name]
    const length = marks[2 * slot + 1]!
    if (marks[2 * slot] !== flight || length === 0) return undefined
    const at = slot * textBytes[name]
    // Copy the text, because decoders reject shared memory.
    return decoder.decode(texts.slice(at, at + length))
  }

  const read = (slot: number): FlightEntry => {
    const of = (name: keyof typeof field): number => numbers[slot * FIELDS + field[name]]!
    const number = of('number')
    const fingerprint = { kind: of('kind'), root: of('root'), count: of('count') }
    const peer = of('peer')
    const isMessage = peer !== NO_PEER
    const name = nameOfFingerprint(fingerprint)
    return {
      number,
      group: of('group'),
      sequence: of('sequence'),
      name: isMessage ? (of('isReceive') === 1 ? 'recv' : 'send') : name,
      operation: describeFingerprint(fingerprint),
      label: textOf(number, 'label'),
      site: textOf(number, 'site'),
      peer: peer >= 0 ? peer : undefined,
      tag: isMessage ? of('tag') : undefined,
      bytes: of('bytes'),
      posted: of('posted'),
      started: of('started'),
      completed: of('completed'),
      state: flightStates[of('state')] ?? 'running',
      error: codes[of('error')],
      waitsFor: textOf(number, 'peers')?.split(',').map(Number),
    }
  }

  /** Returns the kept entries in call order. */
  const entries = (): FlightEntry[] => {
    const kept: FlightEntry[] = []
    for (let slot = 0; slot < capacity; slot++) {
      if (numbers[slot * FIELDS + field.number] !== 0) kept.push(read(slot))
    }
    return kept.sort((a, b) => a.number - b.number)
  }

  /** Whether a dump was attempted, by the calling thread or by the engine's thread. */
  const hasReason = (): boolean => reasonBytes[0] !== 0

  return {
    buffer,
    hasReason,
    /** Returns the reason of the first dump. Later dumps repeat the first reason. */
    firstReason(reason: string): string {
      if (!hasReason()) encodeInto(reason, reasonBytes)
      const end = reasonBytes.indexOf(0)
      return decoder.decode(reasonBytes.slice(0, end < 0 ? REASON_BYTES : end))
    },
    /**
     * Records that a thread accepted an operation.
     * @param peer - world rank of the other end of a message, ANY_PEER or NO_PEER
     */
    start(
      operation: Operation,
      fingerprint: Fingerprint,
      peer: number,
      posted: number,
      state: 'running' | 'refused',
    ): void {
      const { flight } = operation
      const at = slotOf(flight) * FIELDS
      numbers[at + field.group] = operation.group
      numbers[at + field.sequence] = operation.sequence
      numbers[at + field.kind] = fingerprint.kind
      numbers[at + field.root] = fingerprint.root
      numbers[at + field.count] = fingerprint.count
      numbers[at + field.peer] = peer
      numbers[at + field.tag] = operation.tag
      numbers[at + field.bytes] = bytesOf(operation)
      numbers[at + field.posted] = posted
      numbers[at + field.started] = 0
      numbers[at + field.completed] = 0
      numbers[at + field.state] = state === 'running' ? stateCodes.running : stateCodes.refused
      numbers[at + field.error] = -1
      numbers[at + field.isReceive] = operation.name === 'recv' ? 1 : 0
      numbers[at + field.number] = flight
    },
    /** Records when the first message moved. */
    begin(flight: number, started: number): void {
      const at = slotOf(flight) * FIELDS
      if (numbers[at] === flight) numbers[at + field.started] = started
    },
    /** Records the end of an operation. An operation in the state `refused` stays in it. */
    end(flight: number, started: number, completed: number, error: TsrErrorCode | undefined): void {
      const at = slotOf(flight) * FIELDS
      // A newer operation may have overwritten the entry.
      if (numbers[at] !== flight) return
      numbers[at + field.started] = started
      numbers[at + field.completed] = completed
      if (error !== undefined) numbers[at + field.error] = codes.indexOf(error)
      if (numbers[at + field.state] === stateCodes.running) {
        numbers[at + field.state] = error === undefined ? stateCodes.done : stateCodes.failed
      }
    },
    /** Writes a text of an operation, truncated to the space of the field. */
    write(flight: number, name: TextName, text: string): void {
      const slot = slotOf(flight)
      const { marks, texts } = columns[name]
      const at = slot * textBytes[name]
      marks[2 * slot + 1] = encodeInto(text, texts.subarray(at, at + textBytes[name]))
      marks[2 * slot] = flight
    },
    textOf,
    entries,
    /** Returns the kept operation that completed last. */
    lastEnded(): FlightEntry | undefined {
      const ended = entries().filter(({ completed }) => completed > 0)
      return ended.sort((a, b) => a.completed - b.completed).at(-1)
    },
  }
}

function sizeOf(capacity: number): number {
  const texts = Object.values(textBytes).reduce((bytes, each) => bytes + 16 + each, 0)
  return capacity * (FIELDS * 8 + texts) + REASON_BYTES
}
