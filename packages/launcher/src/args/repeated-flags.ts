/** What stands between the parts of the flags that are lists; given several times, they add up. */
const separators: Readonly<Record<string, string>> = {
  ranks: ',',
  rank: ',',
  'local-ranks-filter': ',',
  'duplicate-stdout-filters': ',',
  'duplicate-stderr-filters': ',',
  'signals-to-handle': ',',
  'rdzv-conf': ',',
  'node-args': ' ',
  env: ',',
  include: ',',
  exclude: ',',
}

/** The keys of yargs whose values are arrays, and the one argument of which there may be several. */
const arrays = ['_', '--', 'folder']

/**
 * Leaves one value of each flag that is given several times: lists are joined; of others the last counts,
 * as with torchrun.
 *
 * @param values - by name, as yargs parses them: an array where a flag is repeated
 * @param aliases - the other names of each flag, which have the same values
 * @param words - the command line up to the script
 * @returns a sentence for each value that does not count
 */
export function settleRepeated(
  values: Record<string, unknown>,
  aliases: Readonly<Record<string, readonly string[]>>,
  words: readonly string[],
): string[] {
  const notes: string[] = []
  const settled = new Set(arrays)
  for (const [name, given] of Object.entries(values)) {
    if (settled.has(name)) continue
    const names = [name, ...(aliases[name] ?? [])]
    const shown = names.find((each) => each.length > 1)!
    for (const each of names) settled.add(each)
    // yargs itself keeps the last of several switches.
    const spelled = typeof given === 'boolean' ? words.filter((word) => isSwitch(word, name)) : []
    if (new Set(spelled).size > 1) notes.push(replacement(spelled))
    if (!Array.isArray(given)) continue
    const texts = given.map(String)
    const separator = names.map((each) => separators[each]).find((text) => text !== undefined)
    if (separator === undefined && new Set(texts).size > 1) {
      notes.push(replacement(texts.map((text) => `--${shown} ${text}`)))
    }
    for (const each of names) {
      values[each] = separator === undefined ? texts.at(-1) : texts.join(separator)
    }
  }
  return notes
}

function isSwitch(word: string, name: string): boolean {
  return [`--${name}`, `--no-${name}`].includes(word.split('=', 1)[0]!)
}

function replacement(spelled: readonly string[]): string {
  const last = spelled.at(-1)!
  return `${last} replaces ${[...new Set(spelled)].filter((each) => each !== last).join(' and ')}`
}
