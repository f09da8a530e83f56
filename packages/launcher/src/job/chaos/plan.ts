import { constants } from 'node:os'
import {
  choice,
  count,
  declareOptions,
  isTsrError,
  positive,
  refuseUnknown,
  where,
} from '@tsrun/core'

/** The kinds of faults. docs/chaos.md describes each. */
const faultKinds = [
  'kill',
  'stop',
  'exit',
  'throw',
  'reject',
  'busy',
  'memory',
  'clock',
  'descriptors',
  'address-space',
  'disk',
  'disconnect',
  'half-close',
  'delay',
  'drop',
  'corrupt',
  'truncate',
  'slow',
] as const

/** The kind of an injected fault, such as `kill` or `delay`. */
export type FaultKind = (typeof faultKinds)[number]

/** The options that only some kinds accept, with these kinds. */
const optionsOf: Readonly<Record<string, readonly FaultKind[]>> = {
  signal: ['kill'],
  code: ['exit'],
  forSeconds: ['stop', 'busy', 'slow', 'delay'],
  milliseconds: ['delay'],
  share: ['slow'],
  mebibytes: ['address-space'],
  bySeconds: ['clock'],
  limit: ['descriptors'],
}

const readFault = declareOptions(
  {
    kind: choice(...faultKinds),
    /** The world rank. By default, the seed chooses a rank each time. */
    rank: count().optional(),
    /** Injects the fault after this step, as reported by `group.reportProgress` or a trainer. */
    step: count().optional(),
    /** Injects the fault after the rank has completed this number of operations. */
    operations: count({ from: 1 }).optional(),
    /** Seconds after the start of the ranks. */
    seconds: positive('a positive number of seconds').optional(),
    /** Mean seconds between repeated faults, with exponentially distributed times. */
    meanSeconds: positive('a positive number of seconds').optional(),
    /** The attempt of the job, from 0, in which a fault with a step, operations or seconds is injected. */
    attempt: count().default(0),
    /** Maximum repetitions of a fault with `meanSeconds`. */
    times: count({ from: 1 }).optional(),
    /** For `kill`. */
    signal: where<NodeJS.Signals>(
      (value) => typeof value === 'string' && Object.hasOwn(constants.signals, value),
      'the name of a signal, such as SIGKILL',
    ).default('SIGKILL'),
    /** For `exit`. */
    code: count({ to: 255 }).default(1),
    /** Duration of `stop`, `busy`, `slow` and `delay`. */
    forSeconds: positive('a positive number of seconds').default(1),
    /** For `delay`: how long outgoing messages are held back. */
    milliseconds: positive('a positive number of milliseconds').default(100),
    /** For `clock`: seconds added to the wall clock. */
    bySeconds: where<number>(Number.isFinite, 'a number of seconds').default(3600),
    /** For `descriptors`: number of files that can still be opened. */
    limit: count().default(0),
    /** For `address-space`: MiB that can still be mapped. */
    mebibytes: count().default(0),
    /** For `slow`: the fraction of the time in which the process runs. */
    share: where<number>(
      (value) => typeof value === 'number' && value > 0 && value < 1,
      'a number between 0 and 1',
    ).default(0.25),
  },
  'fault',
)

export type Fault = ReturnType<typeof readFault>

/** A fault in a plan. Omitted options have their defaults. */
export type FaultOptions = Pick<Fault, 'kind'> & Partial<Fault>

/** The faults to inject, and when. */
export interface ChaosOptions {
  /** The same seed gives the same ranks and times. Default 1. */
  readonly seed?: number
  readonly faults: readonly FaultOptions[]
}

/** A plan with all defaults filled in. */
export interface ChaosPlan {
  /** The same seed gives the same ranks and times. */
  readonly seed: number
  readonly faults: readonly Fault[]
}

/** @throws Error if a fault is for a rank that the job does not have */
export function checkRanks({ faults }: ChaosPlan, size: number): void {
  for (const [i, { rank = 0 }] of faults.entries()) {
    if (rank < size) continue
    throw new Error(`fault ${i + 1}: rank is ${rank}; the job has ${size} ranks`)
  }
}

/** @throws Error with the reason */
export function toChaosPlan(given: unknown): ChaosPlan {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw new Error('the plan is not an object with a list of faults')
  }
  refuseUnknown(given, ['seed', 'faults'], 'plan')
  const { seed = 1, faults } = given as { readonly seed?: unknown; readonly faults?: unknown }
  if (!Array.isArray(faults)) throw new Error('faults is not a list')
  return {
    seed: count({ to: 2 ** 32 - 1 }).check('seed', seed),
    faults: faults.map((fault: unknown, i) => {
      try {
        const read = readFault(fault as object)
        checkOptions(read, Object.keys(fault as object))
        return checkMoment(read)
      } catch (error) {
        throw new Error(`fault ${i + 1}: ${reasonOf(error)}`, { cause: error })
      }
    }),
  }
}

function checkOptions({ kind, meanSeconds }: Fault, given: readonly string[]): void {
  for (const name of given) {
    const kinds = optionsOf[name]
    if (kinds !== undefined && !kinds.includes(kind)) {
      throw new Error(`${name} is an option of ${kinds.join(' and ')}, not of ${kind}`)
    }
  }
  const repeats = meanSeconds !== undefined
  if (!repeats && given.includes('times')) throw new Error('times needs meanSeconds')
  if (repeats && given.includes('attempt')) {
    throw new Error('attempt is not for meanSeconds, whose faults come in every attempt')
  }
}

function checkMoment(fault: Fault): Fault {
  const { step, operations, seconds, meanSeconds } = fault
  const moments = [step, operations, seconds, meanSeconds].filter((one) => one !== undefined)
  if (moments.length !== 1) {
    throw new Error(
      moments.length === 0
        ? 'it needs one of step, operations, seconds and meanSeconds, to say when it is injected'
        : 'only one of step, operations, seconds and meanSeconds may say when it is injected',
    )
  }
  return fault
}

/** The reason for an error, without the advice that addresses callers of a function. */
export function reasonOf(error: unknown): string {
  if (!isTsrError(error) || error.code !== 'ERR_TSR_ARGUMENT') {
    return (error as Error).message.split(/\.?\n|:\n/, 1)[0]!
  }
  const { name, value, expected } = error.facts
  return `${String(name)} is ${String(value)}; expected ${String(expected)}`
}
