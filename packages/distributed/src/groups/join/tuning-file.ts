import { createHash } from 'node:crypto'
import {
  anything,
  choice,
  count,
  list,
  messageOf,
  object,
  readFileText,
  record,
  tsrError,
} from '@tsrun/core'
import { operationCodes, type OperationName } from '../../operation.ts'
import {
  builtInTuning,
  media,
  type Thresholds,
  type TuningTable,
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
    /** Equal tables have equal digests. */
    digest,
  }
}

const listsByName = record(anything()).optional()
const tuningFile = object(
  { version: choice(1), about: anything(), sockets: listsByName, sharedMemory: listsByName },
  'refuse',
)

function tableOf(file: unknown, complain: Complain): TuningTable {
  if (!tuningFile.is(file)) {
    throw complain(`expected an object with "version": 1, and objects named ${media.join(', ')}`)
  }
  const { sockets = {}, sharedMemory = {} } = file
  return {
    sockets: { ...builtInTuning.sockets, ...readMedium(sockets, complain) },
    sharedMemory: { ...builtInTuning.sharedMemory, ...readMedium(sharedMemory, complain) },
  }
}

/**
 * Reads the thresholds of one medium. Coalesced all-reduces use the thresholds of all-reduces,
 * unless the file sets their own.
 */
function readMedium(
  lists: Readonly<Record<string, unknown>>,
  complain: Complain,
): Partial<Record<OperationName, Thresholds>> {
  const thresholds: Partial<Record<OperationName, Thresholds>> = {}
  for (const [name, value] of Object.entries(lists)) {
    if (!Object.hasOwn(operationCodes, name)) throw complain(`there is no operation "${name}"`)
    const operation = name as OperationName
    const rule = thresholdsOf(operation)
    if (!rule.is(value)) throw complain(`"${name}": expected ${rule.expected}`)
    thresholds[operation] = value.map(({ upTo = Infinity, algorithm }) => ({ upTo, algorithm }))
  }
  return thresholds.allReduce === undefined
    ? thresholds
    : { allReduceCoalesced: thresholds.allReduce, ...thresholds }
}

function thresholdsOf(operation: OperationName) {
  const known = algorithmsForMessages(operation)
  return list(object({ algorithm: choice(...known), upTo: count().optional() })).refine(
    (thresholds) => {
      const limits = thresholds.map(({ upTo = Infinity }) => upTo)
      const areAscending = limits.every((limit, i) => i === 0 || limit > limits[i - 1]!)
      return areAscending && limits.at(-1) === Infinity
    },
    `a list of { "upTo": bytes, "algorithm": name }, by ascending bytes and the last without "upTo"; the algorithms are ${known.join(', ')}`,
  )
}
