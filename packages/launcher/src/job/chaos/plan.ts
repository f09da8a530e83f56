import { constants } from 'node:os'
import { choice, count, declareOptions, finite, positive, where } from '@tsrun/core'
import { reasonOf } from '../../args/readers.ts'

/** The kinds of faults, which docs/chaos.md describes, with the options that only some kinds accept. */
const kinds = {
  kill: ['signal'],
  stop: ['forSeconds'],
  exit: ['code'],
  throw: [],
  reject: [],
  busy: ['forSeconds'],
  memory: [],
  clock: ['bySeconds'],
  descriptors: [],
  'address-space': [],
  disk: [],
  disconnect: [],
  'half-close': [],
  delay: ['milliseconds', 'forSeconds'],
  drop: [],
  corrupt: [],
  truncate: [],
  slow: ['share', 'forSeconds'],
} as const

/** The kind of an injected fault, such as `kill` or `delay`. */
export type FaultKind = keyof typeof kinds

const readFault = declareOptions(
  {
    kind: choice(...(Object.keys(kinds) as FaultKind[])),
    /** The world rank of the target. By default, the seed chooses a rank each time. */
    rank: count().optional(),
    /** Injects the fault after this step, as reported by `group.reportProgress` or a trainer. */
    step: count().optional(),
    /** Injects the fault after the rank has completed this number of operations. */
    operations: count({ from: 1 }).optional(),
    /** Injects the fault this many seconds after the start of the ranks. */
    seconds: positive('a positive number of seconds').optional(),
    /** Mean seconds between repeated faults, with exponentially distributed times. */
    meanSeconds: positive('a positive number of seconds').optional(),
    /** The attempt of the job, from 0, in which a fault with a step, operations or seconds is injected. */
    attempt: count().default(0),
    /** For `kill`: the signal. */
    signal: where<NodeJS.Signals>(
      (value) => typeof value === 'string' && Object.hasOwn(constants.signals, value),
      'the name of a signal, such as SIGKILL',
    ).default('SIGKILL'),
    /** For `exit`: the exit code. */
    code: count({ to: 255 }).default(1),
    /** Duration of `stop`, `busy`, `slow` and `delay`. */
    forSeconds: positive('a positive number of seconds').default(1),
    /** For `delay`: how long outgoing messages are held back. */
    milliseconds: positive('a positive number of milliseconds').default(100),
    /** For `clock`: seconds added to the wall clock. */
    bySeconds: finite().default(3600),
    /** For `slow`: the fraction of the time in which the process runs. */
    share: finite({ above: 0, below: 1 }).default(0.25),
  },
  'fault',
)

export type Fault = ReturnType<typeof readFault>

/** A fault in a plan. Omitted options have their defaults. */
export type FaultOptions = Pick<Fault, 'kind'> & Partial<Fault>

/** The faults to inject, with their times. */
export interface ChaosOptions {
  /** The same seed gives the same ranks and times. Default 1. */
  readonly seed?: number
  readonly faults: readonly FaultOptions[]
}

const readPlan = declareOptions(
  {
    seed: count({ to: 2 ** 32 - 1 }).default(1),
    faults: where<readonly object[]>(Array.isArray, 'a list of faults'),
  },
  'plan',
)

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

export function toChaosPlan(given: unknown): ChaosPlan {
  const { seed, faults } = readPlan(given as object)
  return {
    seed,
    faults: faults.map((fault, i) => {
      try {
        const read = readFault(fault)
        checkOptions(read, Object.keys(fault))
        return read
      } catch (error) {
        throw new Error(`fault ${i + 1}: ${reasonOf(error)}`, { cause: error })
      }
    }),
  }
}

function checkOptions(
  { kind, step, operations, seconds, meanSeconds }: Fault,
  given: readonly string[],
): void {
  for (const name of given) {
    const owners = Object.entries<readonly string[]>(kinds).flatMap(([owner, names]) =>
      names.includes(name) ? owner : [],
    )
    if (owners.length > 0 && !owners.includes(kind)) {
      throw new Error(`${name} is an option of ${owners.join(' and ')}, not of ${kind}`)
    }
  }
  if (meanSeconds !== undefined && given.includes('attempt')) {
    throw new Error('attempt is not for meanSeconds, whose faults come in every attempt')
  }
  const moments = [step, operations, seconds, meanSeconds].filter((one) => one !== undefined)
  if (moments.length !== 1) {
    throw new Error(
      'exactly one of step, operations, seconds and meanSeconds has to say when it is injected',
    )
  }
}

/** For example `kill (signal: SIGTERM)`. */
export function describeFault(fault: Fault): string {
  const options = kinds[fault.kind].map((name) => `${name}: ${fault[name]}`)
  return fault.kind + (options.length === 0 ? '' : ` (${options.join(', ')})`)
}
