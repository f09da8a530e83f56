import { createHash } from 'node:crypto'
import { isObject, messageOf, readFileText, tsrError } from '@tsrun/core'
import { operationCodes, type AlgorithmName, type OperationName } from '../../operation.ts'
import {
  builtInTuning,
  media,
  type Thresholds,
  type TuningTable,
  type Threshold,
} from '../../algorithms/tuning-table.ts'
import { algorithmsForMessages } from '../../algorithms/select.ts'

/** The tuning table of a rank and its source. */
type Tuning = ReturnType<typeof tuningOf>

/** The part of a tuning that ranks exchange to compare their tables. */
type TuningIdentity = Pick<Tuning, 'source' | 'digest'>

type Complain = (problem: string) => Error

/**
 * Reads the tuning file that TSRUN_TUNING names. Thresholds that it omits come from the built-in table:
 *
 *     {
 *       "version": 1,
 *       "about": "anything",
 *       "sockets": { "allGather": [{ "upTo": 65536, "algorithm": "bruck" }, { "algorithm": "ring" }] },
 *       "sharedMemory": { "allGather": [{ "algorithm": "direct" }] }
 *     }
 *
 * `upTo` is the size of the whole buffer in bytes, inclusive. The last entry of each list has no
 * `upTo`.
 *
 * @param path - undefined or empty: the built-in thresholds
 * @throws ERR_TSR_TUNING if the file cannot be read or is invalid
 */
export function readTuning(path: string | undefined): Tuning {
  if (path === undefined || path === '') {
    return tuningOf(builtInTuning, 'the built-in thresholds')
  }
  const complain: Complain = (problem) => tsrError('ERR_TSR_TUNING', { path, problem })
  let file: unknown
  try {
    file = JSON.parse(readFileText(path))
  } catch (error) {
    throw complain(messageOf(error))
  }
  return tuningOf(tableOf(file, complain), path)
}

/**
 * Checks that all ranks have the same table, because ranks that choose different algorithms cannot
 * communicate.
 *
 * @param tunings - the tuning of each rank, in rank order
 * @throws ERR_TSR_TUNING_DIFFERS, on all ranks
 */
export function checkSameTuning(rank: number, tunings: readonly TuningIdentity[]): void {
  const own = tunings[rank]!
  const peer = tunings.findIndex(({ digest }) => digest !== own.digest)
  if (peer < 0) return
  const [mine, theirs] = [own.source, tunings[peer]!.source]
  throw tsrError('ERR_TSR_TUNING_DIFFERS', { rank, mine, peer, theirs })
}

/** @param source - a readable description of where the table comes from */
function tuningOf(table: TuningTable, source: string) {
  const text = JSON.stringify(media.map((medium) => Object.entries(table[medium]).sort()))
  const digest = createHash('sha256').update(text).digest('hex').slice(0, 16)
  return {
    table,
    source,
    /** The same for equal tables. */
    digest,
  }
}

function tableOf(file: unknown, complain: Complain): TuningTable {
  if (!isObject(file)) throw complain('it is not an object')
  const { version, sockets, sharedMemory } = file
  if (version !== 1) throw complain(`its version is ${JSON.stringify(version)}; expected 1`)
  const known = ['version', 'about', ...media]
  const unknown = Object.keys(file).find((key) => !known.includes(key))
  if (unknown !== undefined) throw complain(`"${unknown}" is unknown; expected ${media.join(', ')}`)
  return {
    sockets: { ...builtInTuning.sockets, ...readMedium('sockets', sockets, complain) },
    sharedMemory: {
      ...builtInTuning.sharedMemory,
      ...readMedium('sharedMemory', sharedMemory, complain),
    },
  }
}

/**
 * Reads the thresholds of one medium. Coalesced all-reduces use the thresholds of all-reduces,
 * unless the file sets their own.
 */
function readMedium(
  medium: string,
  value: unknown,
  complain: Complain,
): Partial<Record<OperationName, Thresholds>> {
  if (value === undefined) return {}
  if (!isObject(value)) throw complain(`"${medium}" is not an object`)
  const thresholds: Partial<Record<OperationName, Thresholds>> = {}
  for (const [name, list] of Object.entries(value)) {
    if (!Object.hasOwn(operationCodes, name)) {
      throw complain(`"${medium}": there is no operation "${name}"`)
    }
    const operation = name as OperationName
    thresholds[operation] = readThresholds(operation, list, (problem) =>
      complain(`"${medium}", "${name}": ${problem}`),
    )
  }
  return thresholds.allReduce === undefined
    ? thresholds
    : { allReduceCoalesced: thresholds.allReduce, ...thresholds }
}

function readThresholds(operation: OperationName, list: unknown, complain: Complain): Thresholds {
  if (!Array.isArray(list) || list.length === 0) throw complain('expected a list of thresholds')
  const known = algorithmsForMessages(operation)
  let below = -1
  return list.map((entry: unknown, i): Threshold => {
    if (!isObject(entry)) throw complain(`entry ${i} is not an object`)
    const { algorithm, upTo } = entry
    if (!known.includes(algorithm as AlgorithmName)) {
      const given = JSON.stringify(algorithm)
      throw complain(`entry ${i}: algorithm ${given}; expected one of ${known.join(', ')}`)
    }
    const isLast = i === list.length - 1
    if (isLast && upTo !== undefined) throw complain('the last entry has a limit')
    if (!isLast && !(Number.isSafeInteger(upTo) && Number(upTo) > below)) {
      throw complain(`entry ${i}: "upTo" is ${JSON.stringify(upTo)}; expected bytes, ascending`)
    }
    below = Number(upTo)
    return { upTo: isLast ? Infinity : below, algorithm: algorithm as AlgorithmName }
  })
}
