import { resolve } from 'node:path'
import { readFileText } from '@tsrun/core'
import { parse } from 'yaml'
import { reasonOf, usageError } from '../../args/readers.ts'
import { checkRanks, toChaosPlan, type ChaosPlan, type FaultKind } from './plan.ts'

/** The faults that the launcher injects with signals, which work for any program. */
const outside: readonly FaultKind[] = ['kill', 'stop', 'slow']

/** The largest plan file in bytes. Parsing YAML is slow. */
const MOST_BYTES = 2 ** 20

interface Job {
  /** True if the ranks are not Node processes. */
  readonly isProgram: boolean
  /** The maximum number of ranks of the job. */
  readonly size: number
}

/** @param file - YAML or JSON, relative to `cwd` */
export function readChaosPlan(file: string, cwd: string, { isProgram, size }: Job): ChaosPlan {
  try {
    const plan = parseChaosPlan(readFileText(resolve(cwd, file), MOST_BYTES))
    checkRanks(plan, size)
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

export function parseChaosPlan(text: string): ChaosPlan {
  return toChaosPlan(parse(text))
}
