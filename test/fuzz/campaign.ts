import { isNativeError } from 'node:util/types'
import { isTsrError, seededRandom } from '@tsrun/core'
import { mutateBytes, mutateValue } from './mutate.ts'

/** A decoder, or anything else that reads what others have written. */
export interface Target {
  readonly name: string
  /** Inputs that it accepts, which are changed: texts of JSON, other texts, or bytes. */
  readonly seeds: readonly (string | Uint8Array)[]
  /** Whether the seeds are JSON, whose values are changed besides its bytes. */
  readonly isJson?: boolean
  /** Puts a changed value into bytes; default: as JSON. */
  readonly encode?: (value: unknown) => Uint8Array
  /** May throw what is meant for people: an error of tsrun, or a plain Error. */
  readonly run: (input: Uint8Array) => unknown
}

/** An input that ends in another way than it may. */
export interface Find {
  readonly target: string
  readonly input: Uint8Array
  readonly problem: string
}

export interface CampaignOptions {
  readonly seed: number
  /** The inputs to try; or until `isOver` says so. */
  readonly inputs?: number
  readonly isOver?: () => boolean
}

/** Milliseconds of CPU time beyond which an input counts as a hang, however loaded the machine is. */
const HANG = 2000

/** Whether an error comes from unchecked input: a TypeError, a RangeError, a SyntaxError. */
export function isRaw(error: unknown): boolean {
  return !isTsrError(error) && !(isNativeError(error) && error.name === 'Error')
}

/** Runs one input. */
export async function examine(target: Target, input: Uint8Array): Promise<Find | undefined> {
  const start = process.cpuUsage()
  try {
    await target.run(input)
  } catch (error) {
    if (isRaw(error)) {
      const problem = isNativeError(error) ? (error.stack ?? error.message) : String(error)
      return { target: target.name, input, problem }
    }
  }
  const { user, system } = process.cpuUsage(start)
  const milliseconds = (user + system) / 1000
  if (milliseconds < HANG) return undefined
  return {
    target: target.name,
    input,
    problem: `it took ${milliseconds.toFixed(0)} ms of CPU time`,
  }
}

/** Tries changed inputs until one ends badly. @returns the find, if any, and how many were tried */
export async function campaign(
  target: Target,
  { seed, inputs = Infinity, isOver = () => false }: CampaignOptions,
): Promise<{ readonly find: Find | undefined; readonly tried: number }> {
  const random = seededRandom(seed)
  const seeds = target.seeds.map((one) => (typeof one === 'string' ? Buffer.from(one) : one))
  const encode = target.encode ?? ((value: unknown) => Buffer.from(JSON.stringify(value)))
  const values =
    target.isJson === true
      ? target.seeds.map((one): unknown => JSON.parse(Buffer.from(one as string).toString()))
      : []
  let tried = 0
  for (; tried < inputs && !isOver(); tried++) {
    const which = Math.floor(random() * seeds.length)
    let input: Uint8Array
    if (values.length > 0 && random() < 0.8) {
      let value = values[which]
      for (let changes = 1 + Math.floor(random() * 3); changes > 0; changes--) {
        value = mutateValue(random, value)
      }
      input = encode(value)
    } else {
      const valid = values.length > 0 ? encode(values[which]) : seeds[which]!
      input = mutateBytes(random, valid, seeds)
    }
    const find = await examine(target, input)
    if (find !== undefined) return { find, tried: tried + 1 }
  }
  return { find: undefined, tried }
}
