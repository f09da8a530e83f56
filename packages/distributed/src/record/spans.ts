import { count, declareOptions, monotonicNow } from '@tsrun/core'

/**
 * The kinds of spans of a rank.
 *
 * - Training: a whole `step`; `input` waits for data, `batch` splits a batch, `F` is forward, `B`
 * is backward, `I` and `W` are the input and the weight half of backward, and `optimizer` updates
 * the parameters.
 * - Buffers: `pack` copies tensors into the buffers of operations, `unpack` copies them back.
 *   `reduce` scales, adds or converts buffers. `alloc` allocates or frees them.
 * - Calls: `call` starts or polls an operation, and `wait` waits until one has completed.
 * - Other: `checkpoint` saves or loads a checkpoint, and `gc` collects garbage.
 *
 * All kinds above run on the main thread and may be nested. The operations `send`, `recv` and
 * `collective` run in the engine at the same time.
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

/** The kind of a span; see `spanKinds`. */
export type SpanKind = (typeof spanKinds)[number]

/** Whether spans of a kind run in the engine, concurrently with the main thread. */
export function isOperationKind(kind: SpanKind): kind is 'send' | 'recv' | 'collective' {
  return kind === 'send' || kind === 'recv' || kind === 'collective'
}

/** The kinds of spans that are actions of a pipeline schedule. */
export const actionKinds: ReadonlySet<SpanKind> = new Set<SpanKind>(['F', 'B', 'I', 'W'])

/** The facts of a span besides its kind and its times. */
export interface SpanFacts {
  /** Readable name, for example the label of an operation. */
  readonly name?: string | undefined
  /** The pipeline stage. */
  readonly stage?: number | undefined
  /** The micro-batch. */
  readonly microbatch?: number | undefined
  /** The size of the message or of the copied data, in bytes. */
  readonly bytes?: number | undefined
  /** The rank at the other end of the message. */
  readonly peer?: number | undefined
  /** The tag of the message. */
  readonly tag?: number | undefined
  /** Milliseconds until the peer was ready; the remainder of the span is the transfer. */
  readonly waited?: number | undefined
  /** Milliseconds from the completion of an operation until this rank noticed it. */
  readonly noticed?: number | undefined
  /** The group of an operation, as a number that is the same on all its ranks. */
  readonly group?: number | undefined
  /**
   * The position of a collective in its group, the same on all ranks. For a message, the position
   * among the group's messages with the same sender, receiver and tag.
   */
  readonly sequence?: number | undefined
  /** 1 for a collective that completes on a rank only after all ranks have started it. */
  readonly joint?: number | undefined
  /** The CPU time of all threads of the process, in milliseconds. */
  readonly cpu?: number | undefined
  /** The number of a step, from 1. */
  readonly step?: number | undefined
  /** The loss of the step, if the program reports it. */
  readonly loss?: number | undefined
}

/** Receives every span that a recorder of this process records. */
export interface SpanSink {
  /**
   * Receives one span.
   * @param kind - index of the kind in `spanKinds`
   * @param facts - the numeric facts of the span, from index `at` on, in the order of `factNames`;
   * NaN for a fact that the span lacks
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

/** Sets the sink of all spans of this process, in addition to their recorders; undefined: none. */
export function sendSpansTo(next: SpanSink | undefined): void {
  sink = next
}

/** One span of a rank. Times are milliseconds of `monotonicNow()`, which all processes of a host share. */
export interface Span extends SpanFacts {
  readonly rank: number
  readonly kind: SpanKind
  readonly start: number
  readonly end: number
}

/** Options of `SpanRecorder`. */
export interface SpanRecorderOptions {
  /** The rank of the spans. */
  readonly rank: number
  /** The number of spans that are kept; default 4096. */
  readonly capacity?: number
}

const readOptions = declareOptions({ rank: count(), capacity: count({ from: 1 }).default(4096) })

/** The value of an absent fact. */
const NONE = Number.NaN

/** The names of the facts that are numbers. */
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
  /** Whether to record the CPU time of pipeline computations, which costs system calls. */
  wantsCpu = false
  readonly #kinds: Uint8Array
  readonly #times: Float64Array
  readonly #facts: Float64Array
  readonly #names: (string | undefined)[]
  #recorded = 0

  /** @throws ERR_TSR_ARGUMENT if the capacity is not an integer of at least 1 */
  constructor(options: SpanRecorderOptions) {
    const { rank, capacity } = readOptions(options)
    this.rank = rank
    this.capacity = capacity
    this.#kinds = new Uint8Array(capacity)
    this.#times = new Float64Array(2 * capacity)
    this.#facts = new Float64Array(FACTS * capacity)
    this.#names = new Array<string | undefined>(capacity).fill(undefined)
  }

  /** The number of spans recorded so far, including overwritten ones. */
  get recorded(): number {
    return this.#recorded
  }

  /**
   * Records a span.
   * @param start - milliseconds of `monotonicNow()`, like `end`
   */
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
    // In the order of `factNames`. A loop over the names takes several times as long.
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

  /** Returns the kept spans in recording order, without the first `since` recorded ones. */
  spans(since = 0): Span[] {
    const first = Math.max(since, this.#recorded - this.capacity, 0)
    const spans: Span[] = []
    for (let index = first; index < this.#recorded; index++) spans.push(this.#read(index))
    return spans
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
 * Runs `run`, which must be synchronous, and records it as a span if there is a recorder.
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

/** Awaits `run` and records it as a span of kind `wait` if there is a recorder. */
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

/** The trace of this rank, for callers that add spans to it. */
export interface CurrentTrace {
  /** The recorder for callers that have no recorder of their own. */
  readonly recorder: SpanRecorder
  /**
   * Ends the current step and starts the next. The program reports the number and the loss of the
   * ended step.
   */
  endStep(step: number, loss?: number): void
}

let current: CurrentTrace | undefined

export function setCurrentTrace(trace: CurrentTrace | undefined): void {
  current = trace
}

/** The trace that this rank records; undefined if it records none. */
export function currentTrace(): CurrentTrace | undefined {
  return current
}

/** Awaits `run`, and records the wait in this rank's trace if there is one. */
export async function traceWait<T>(
  kind: 'input' | 'checkpoint',
  facts: SpanFacts,
  run: () => PromiseLike<T> | T,
): Promise<T> {
  if (current === undefined) return await run()
  const start = monotonicNow()
  try {
    return await run()
  } finally {
    current.recorder.record(kind, start, monotonicNow(), facts)
  }
}
