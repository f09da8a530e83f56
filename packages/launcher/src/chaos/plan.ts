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

/** What happens to a rank. docs/chaos.md describes each kind. */
export const faultKinds = [
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

export type FaultKind = (typeof faultKinds)[number]

/** The options that some kinds have. */
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
    /** The world rank; without it, the seed chooses one each time. */
    rank: count().optional(),
    /** The step, as `group.reportProgress` or a trainer reports it, after which the fault comes. */
    step: count().optional(),
    /** The number of operations of the rank after whose end the fault comes. */
    operations: count({ from: 1 }).optional(),
    /** Seconds after the ranks have started. */
    seconds: positive('a positive number of seconds').optional(),
    /** The mean of the seconds between two such faults, whose times are exponentially distributed. */
    meanSeconds: positive('a positive number of seconds').optional(),
    /** The attempt of the job, from 0, in which a fault at a step, an operation or a time comes. */
    attempt: count().default(0),
    /** How often a fault with `meanSeconds` comes at most. */
    times: count({ from: 1 }).optional(),
    /** Of `kill`. */
    signal: where<NodeJS.Signals>(
      (value) => typeof value === 'string' && Object.hasOwn(constants.signals, value),
      'the name of a signal, such as SIGKILL',
    ).default('SIGKILL'),
    /** Of `exit`. */
    code: count({ to: 255 }).default(1),
    /** How long `stop`, `busy`, `slow` and `delay` last. */
    forSeconds: positive('a positive number of seconds').default(1),
    /** Of `delay`: how long what is sent is held back. */
    milliseconds: positive('a positive number of milliseconds').default(100),
    /** Of `clock`: what is added to the time of day. */
    bySeconds: where<number>(Number.isFinite, 'a number of seconds').default(3600),
    /** Of `descriptors`: how many files can still be opened. */
    limit: count().default(0),
    /** Of `address-space`: how much more memory can be mapped. */
    mebibytes: count().default(0),
    /** Of `slow`: the part of the time in which the process runs. */
    share: where<number>(
      (value) => typeof value === 'number' && value > 0 && value < 1,
      'a number between 0 and 1',
    ).default(0.25),
  },
  'fault',
)

export type Fault = ReturnType<typeof readFault>

/** A fault as a plan names it: what is left out has its default. */
export type FaultOptions = Pick<Fault, 'kind'> & Partial<Fault>

/** Which faults come when. */
export interface ChaosOptions {
  /** The same seed gives the same ranks and times. Default 1. */
  readonly seed?: number
  readonly faults: readonly FaultOptions[]
}

/** Which faults come when, complete. */
export interface ChaosPlan {
  /** The same seed gives the same ranks and times. */
  readonly seed: number
  readonly faults: readonly Fault[]
}

/** @throws Error when a fault is for a rank that the job does not have */
export function checkRanks({ faults }: ChaosPlan, size: number): void {
  for (const [i, { rank = 0 }] of faults.entries()) {
    if (rank < size) continue
    throw new Error(`fault ${i + 1}: rank is ${rank}; the job has ${size} ranks`)
  }
}

/** @throws Error, whose message says what is wrong */
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

/** An option of another kind would do nothing. */
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

/** Without the advice, which is for those who call a function. */
export function reasonOf(error: unknown): string {
  if (!isTsrError(error) || error.code !== 'ERR_TSR_ARGUMENT') {
    return (error as Error).message.split(/\.?\n|:\n/, 1)[0]!
  }
  const { name, value, expected } = error.facts
  return `${String(name)} is ${String(value)}; expected ${String(expected)}`
}
