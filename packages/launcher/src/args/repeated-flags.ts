/** Flags that are lists, with the separators that join the values of repeated flags. */
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

/** The keys of yargs whose values are arrays, and the only positional argument that may be repeated. */
const arrays = ['_', '--', 'folder']

/**
 * Reduces repeated flags to one value: joins lists, and otherwise takes the last value, as torchrun does.
 *
 * @param values - by name, as yargs parses them: an array where a flag is repeated
 * @param aliases - the other names of each flag, to which yargs gives the same value
 * @param words - the command line up to the script
 * @returns a sentence for each value that is ignored
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
    // yargs keeps only the last of repeated switches, so search the command line for all of them.
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
