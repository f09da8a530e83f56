import { readFileSync } from 'node:fs'
import { constants } from 'node:os'
import { resolve } from 'node:path'
import {
  choice,
  count,
  declareOptions,
  isTsrError,
  positive,
  refuseUnknown,
  where,
} from '@tsrun/core'
import { parse } from 'yaml'
import { usageError } from '../args/read-setting.ts'

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
  'disk',
  'disconnect',
] as const

export type FaultKind = (typeof faultKinds)[number]

/** The options that some kinds have. */
const optionsOf: Readonly<Record<string, readonly FaultKind[]>> = {
  signal: ['kill'],
  code: ['exit'],
  forSeconds: ['stop', 'busy'],
  bySeconds: ['clock'],
  limit: ['descriptors'],
}

const readFault = declareOptions(
  {
    kind: choice(faultKinds),
    /** The world rank; without it, the seed chooses one each time. */
    rank: count().optional(),
    /** The step, as `group.reportProgress` or a trainer reports it, after which the fault comes. */
    step: count().optional(),
    /** Seconds after the ranks have started. */
    seconds: positive('a positive number of seconds').optional(),
    /** The mean of the seconds between two such faults, whose times are exponentially distributed. */
    meanSeconds: positive('a positive number of seconds').optional(),
    /** The attempt of the job, from 0, in which a fault at a step or a time comes. */
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
    /** How long `stop` and `busy` last. */
    forSeconds: positive('a positive number of seconds').default(1),
    /** Of `clock`: what is added to the time of day. */
    bySeconds: where<number>(Number.isFinite, 'a number of seconds').default(3600),
    /** Of `descriptors`: how many files can still be opened. */
    limit: count().default(0),
  },
  'fault',
)

export type Fault = ReturnType<typeof readFault>

/** Which faults come when: the file of `--chaos`. */
export interface ChaosPlan {
  /** The same seed gives the same ranks and times. */
  readonly seed: number
  readonly faults: readonly Fault[]
}

/** What happens to a rank from outside, and therefore to any program. */
const outside: readonly FaultKind[] = ['kill', 'stop']

/** The job that a plan is for. */
interface Job {
  /** Whether the ranks are not Node. */
  readonly isProgram: boolean
  /** The ranks that there are at most. */
  readonly size: number
}

/**
 * @param file - YAML or JSON, relative to `cwd`
 * @throws ERR_TSR_USAGE
 */
export function readChaosPlan(file: string, cwd: string, { isProgram, size }: Job): ChaosPlan {
  try {
    const plan = parseChaosPlan(readFileSync(resolve(cwd, file), 'utf8'))
    for (const [i, { rank = 0 }] of plan.faults.entries()) {
      if (rank >= size)
        throw new Error(`fault ${i + 1}: rank is ${rank}; the job has ${size} ranks`)
    }
    const inside = plan.faults.find(({ kind }) => !outside.includes(kind))
    if (isProgram && inside !== undefined) {
      throw new Error(
        `${inside.kind} needs ranks that are Node; a program can have ${outside.join(' and ')}`,
      )
    }
    return plan
  } catch (error) {
    throw usageError(`--chaos ${file}: ${reasonOf(error)}`)
  }
}

/** @throws Error, whose message says what is wrong */
export function parseChaosPlan(text: string): ChaosPlan {
  const given = parse(text) as unknown
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
    throw new Error('attempt is for a fault with step or seconds: others come in every attempt')
  }
}

function checkMoment(fault: Fault): Fault {
  const moments = [fault.step, fault.seconds, fault.meanSeconds].filter((one) => one !== undefined)
  if (moments.length !== 1) {
    throw new Error(
      moments.length === 0
        ? 'it has no step, seconds or meanSeconds, one of which says when it comes'
        : 'only one of step, seconds and meanSeconds may say when it comes',
    )
  }
  return fault
}

/** Without the advice, which is for those who call a function. */
function reasonOf(error: unknown): string {
  if (!isTsrError(error) || error.code !== 'ERR_TSR_ARGUMENT') {
    return (error as Error).message.split(/\.?\n|:\n/, 1)[0]!
  }
  const { name, value, expected } = error.facts
  return `${String(name)} is ${String(value)}; expected ${String(expected)}`
}
