import { count, declareOptions, monotonicNow } from '@tsrun/core'

/**
 * What a rank did. Its main thread takes a batch apart (`batch`), computes (`F` forward, `B` backward, its
 * halves `I` and `W`, `optimizer`), copies values of tensors into the buffers of operations (`pack`) and
 * back (`unpack`), computes on such buffers (`reduce`: scales, adds or converts), allocates and frees them
 * (`alloc`), starts an operation or polls it (`call`), waits until one has ended (`wait`) or until there
 * is something to train on (`input`), saves or loads a `checkpoint`, or collects garbage (`gc`). Spans of
 * these kinds may be nested, also in those of whole steps (`step`). Operations (`send`, `recv`,
 * `collective`) run beside them, in the engine.
 */
export const spanKinds = [
  'batch',
  'F',
  'B',
  'I',
  'W',
  'optimizer',
  'pack',
  'unpack',
  'reduce',
  'alloc',
  'call',
  'send',
  'recv',
  'collective',
  'wait',
  'step',
  'input',
  'checkpoint',
  'gc',
] as const

export type SpanKind = (typeof spanKinds)[number]

/** Whether it runs beside the main thread, in the engine. */
export function isOperationKind(kind: SpanKind): kind is 'send' | 'recv' | 'collective' {
  return kind === 'send' || kind === 'recv' || kind === 'collective'
}

/** What a schedule of a pipeline consists of. */
export const actionKinds: ReadonlySet<SpanKind> = new Set<SpanKind>(['F', 'B', 'I', 'W'])

export interface SpanFacts {
  /** Human-readable: the label of an operation, for example, or its name. */
  readonly name?: string | undefined
  /** The pipeline stage, where there is one. */
  readonly stage?: number | undefined
  /** The micro-batch, where there is one. */
  readonly microbatch?: number | undefined
  /** The size of the message, or of what was copied. */
  readonly bytes?: number | undefined
  /** The rank at the other end of the message. */
  readonly peer?: number | undefined
  /** The tag of the message. */
  readonly tag?: number | undefined
  /** The milliseconds until the peer was ready; the rest of the span is the transfer. */
  readonly waited?: number | undefined
  /** The milliseconds from the end of an operation until this rank noticed it. */
  readonly noticed?: number | undefined
  /** The group of an operation: a number that is the same on all its ranks. */
  readonly group?: number | undefined
  /**
   * The position of a collective among those of its group, the same on all ranks; of a message, among
   * those of its group from the same rank to the same rank with the same tag.
   */
  readonly sequence?: number | undefined
  /** 1 for a collective that ends on no rank before all ranks have begun it. */
  readonly joint?: number | undefined
  /** The CPU time of all threads of the process, in milliseconds. */
  readonly cpu?: number | undefined
  /** The number of a step, from 1. */
  readonly step?: number | undefined
  /** The loss of the step, if the program reports it. */
  readonly loss?: number | undefined
}

/** Gets every span that a recorder of this process records. */
export interface SpanSink {
  /**
   * @param kind - its place in `spanKinds`
   * @param facts - those that are numbers, from `at` on in the order of `factNames`; NaN for each
   *   that there is not
   */
  add(
    kind: number,
    start: number,
    end: number,
    name: string | undefined,
    facts: Float64Array,
    at: number,
  ): void
}

let sink: SpanSink | undefined

/** Where all spans of this process go from now on, beside their recorders; undefined: nowhere. */
export function sendSpansTo(next: SpanSink | undefined): void {
  sink = next
}

/** One thing that a rank did. Times are milliseconds of `monotonicNow()`, which all processes of a host share. */
export interface Span extends SpanFacts {
  readonly rank: number
  readonly kind: SpanKind
  readonly start: number
  readonly end: number
}

export interface SpanRecorderOptions {
  /** The rank of the spans. */
  readonly rank: number
  /** The number of spans that are kept; default 4096. */
  readonly capacity?: number
}

const readOptions = declareOptions({ rank: count(), capacity: count({ from: 1 }).default(4096) })

/** Stands for a fact that was not given. */
const NONE = Number.NaN

/** The facts that are numbers. */
export const factNames = [
  'stage',
  'microbatch',
  'bytes',
  'peer',
  'tag',
  'waited',
  'noticed',
  'group',
  'sequence',
  'joint',
  'cpu',
  'step',
  'loss',
] as const
const FACTS = factNames.length

const NO_FACTS: SpanFacts = {}

/**
 * Keeps the newest spans of a rank in a ring buffer of fixed size, which is allocated once.
 *
 * @example
 * const recorder = new SpanRecorder({ rank: 0 })
 * const start = monotonicNow()
 * forward()
 * recorder.record('F', start, monotonicNow(), { stage: 0, microbatch: 3 })
 * recorder.spans() // [{ rank: 0, kind: 'F', stage: 0, microbatch: 3, start, end }]
 */
export class SpanRecorder {
  readonly rank: number
  readonly capacity: number
  /** Whether computations of a pipeline are to be recorded with their CPU time, which costs system calls. */
  wantsCpu = false
  readonly #kinds: Uint8Array
  readonly #times: Float64Array
  readonly #facts: Float64Array
  readonly #names: (string | undefined)[]
  #recorded = 0

  /** @throws ERR_TSR_ARGUMENT when the capacity is not a whole number from 1 */
  constructor(options: SpanRecorderOptions) {
    const { rank, capacity } = readOptions(options)
    this.rank = rank
    this.capacity = capacity
    this.#kinds = new Uint8Array(capacity)
    this.#times = new Float64Array(2 * capacity)
    this.#facts = new Float64Array(FACTS * capacity)
    this.#names = new Array<string | undefined>(capacity).fill(undefined)
  }

  /** The number of spans recorded so far, including those that have left the buffer. */
  get recorded(): number {
    return this.#recorded
  }

  /** @param start - milliseconds of `monotonicNow()`, like `end` */
  record(kind: SpanKind, start: number, end: number, facts: SpanFacts = NO_FACTS): void {
    const slot = this.#recorded % this.capacity
    this.#recorded += 1
    const code = spanKinds.indexOf(kind)
    this.#kinds[slot] = code
    this.#times[2 * slot] = start
    this.#times[2 * slot + 1] = end
    this.#names[slot] = facts.name
    const at = FACTS * slot
    const values = this.#facts
    // in the order of `factNames`; a loop over the names takes several times as long
    values[at] = facts.stage ?? NONE
    values[at + 1] = facts.microbatch ?? NONE
    values[at + 2] = facts.bytes ?? NONE
    values[at + 3] = facts.peer ?? NONE
    values[at + 4] = facts.tag ?? NONE
    values[at + 5] = facts.waited ?? NONE
    values[at + 6] = facts.noticed ?? NONE
    values[at + 7] = facts.group ?? NONE
    values[at + 8] = facts.sequence ?? NONE
    values[at + 9] = facts.joint ?? NONE
    values[at + 10] = facts.cpu ?? NONE
    values[at + 11] = facts.step ?? NONE
    values[at + 12] = facts.loss ?? NONE
    sink?.add(code, start, end, facts.name, values, at)
  }

  /** The spans that are still kept, from the `since`-th recorded one on, in the order of recording. */
  spans(since = 0): Span[] {
    const first = Math.max(since, this.#recorded - this.capacity, 0)
    const spans: Span[] = []
    for (let index = first; index < this.#recorded; index++) spans.push(this.#read(index))
    return spans
  }

  /** Removes all spans. */
  clear(): void {
    this.#recorded = 0
  }

  #read(index: number): Span {
    const slot = index % this.capacity
    const facts = factNames
      .map((name, fact) => [name, this.#facts[FACTS * slot + fact]!] as const)
      .filter(([, value]) => !Number.isNaN(value))
    const name = this.#names[slot]
    return {
      rank: this.rank,
      kind: spanKinds[this.#kinds[slot]!]!,
      ...(name !== undefined && { name }),
      start: this.#times[2 * slot]!,
      end: this.#times[2 * slot + 1]!,
      ...Object.fromEntries(facts),
    }
  }
}

/**
 * Runs `run`, which must not be asynchronous, and records it as a span if there is a recorder.
 *
 * @example
 * const output = timeSpan(recorder, 'F', { microbatch: 3 }, () => forward(input))
 */
export function timeSpan<T>(
  recorder: SpanRecorder | undefined,
  kind: SpanKind,
  facts: SpanFacts,
  run: () => T,
): T {
  if (recorder === undefined) return run()
  const start = monotonicNow()
  const result = run()
  recorder.record(kind, start, monotonicNow(), facts)
  return result
}

/** As `timeSpan`, for what this rank waits for: records it as a span of kind `wait`. */
export async function timeWait<T>(
  recorder: SpanRecorder | undefined,
  facts: SpanFacts,
  run: () => PromiseLike<T>,
): Promise<T> {
  const start = recorder === undefined ? 0 : monotonicNow()
  const result = await run()
  recorder?.record('wait', start, monotonicNow(), facts)
  return result
}
