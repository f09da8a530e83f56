import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { readFileText } from '@tsrun/core'
import { parseFlightDump, type FlightDump } from './flight-records.ts'

/** The result of `readFlightFolder`. */
export interface FlightFolder {
  /** The dumps in rank order. */
  readonly dumps: readonly FlightDump[]
  /** For each unusable file, a sentence that says why. */
  readonly problems: readonly string[]
}

/** Reads the dumps of all ranks in a folder. Lists unusable files instead of throwing. */
export function readFlightFolder(directory: string): FlightFolder {
  const dumps: FlightDump[] = []
  const problems: string[] = []
  let names: string[] = []
  try {
    names = readdirSync(directory).filter((name) => /^rank-\d+\.jsonl$/.test(name))
  } catch (error) {
    problems.push((error as Error).message)
  }
  for (const name of names) {
    try {
      dumps.push(parseFlightDump(readFileText(join(directory, name))))
    } catch (error) {
      problems.push(`${join(directory, name)}: ${(error as Error).message}`)
    }
  }
  dumps.sort((a, b) => a.header.rank - b.header.rank)
  return { dumps, problems }
}
