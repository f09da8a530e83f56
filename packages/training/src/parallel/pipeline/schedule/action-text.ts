import { tsrError, type TsrError } from '@tsrun/core'
import { parseAction, type Action } from './action.ts'

/**
 * Reads action lists, a line for each rank; what `formatActions` writes, and:
 *
 * - CSV: commas or spaces part the actions, and empty cells mean nothing, as in torch's files;
 * - JSON lines: `["0F0", "0B0"]`, or `{ "rank": 0, "actions": ["0F0", "0B0"] }` in any order.
 *
 * Blank lines and what follows a `#` are skipped.
 *
 * @throws ERR_TSR_SCHEDULE naming rank, place and text of what is no action
 */
export function parseActions(text: string): Action[][] {
  const lines = text
    .replace(/^\uFEFF/, '')
    .split(/\r?\n/)
    .map((line) => line.replace(/#.*/, '').trim())
  const lists: string[][] = []
  for (const [at, line] of lines.entries()) {
    if (line === '') continue
    const { rank = lists.length, words } = wordsOf(line, at + 1)
    if (lists[rank] !== undefined) throw refused(`line ${at + 1}: rank ${rank} comes twice`)
    lists[rank] = words
  }
  return Array.from(lists, (words: string[] | undefined, rank) => {
    if (words === undefined) throw refused(`rank ${rank} has no line`)
    return words.map((word, position) => parseAction(word, `rank ${rank}, action ${position}: `))
  })
}

function wordsOf(line: string, number: number): { rank?: number; words: string[] } {
  if (!/^[[{]/.test(line)) {
    return { words: line.split(/[\s,]+/).filter((word) => word !== '') }
  }
  const read = parseJson(line, number)
  const { rank, actions } = (Array.isArray(read) ? { actions: read } : read) as {
    rank?: unknown
    actions?: unknown
  }
  const isList = Array.isArray(actions) && actions.every((word) => typeof word === 'string')
  if (!isList) throw refused(`line ${number}: its actions are no list of strings like "0F3"`)
  if (rank === undefined) return { words: actions }
  if (typeof rank === 'number' && Number.isInteger(rank) && rank >= 0 && rank < MOST_RANKS) {
    return { rank, words: actions }
  }
  throw refused(`line ${number}: its rank is ${JSON.stringify(rank)}, no whole number from 0`)
}

const MOST_RANKS = 2 ** 16

function parseJson(line: string, number: number): unknown {
  try {
    return JSON.parse(line)
  } catch (error) {
    throw refused(`line ${number}: ${(error as Error).message}`)
  }
}

function refused(problem: string): TsrError {
  return tsrError('ERR_TSR_SCHEDULE', { problem })
}
