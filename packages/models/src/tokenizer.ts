import { join } from 'node:path'
import {
  count,
  declareOptions,
  importOptional,
  makeFolders,
  readFileText,
  replaceFile,
  tsrError,
  type Rules,
} from '@tsrun/core'
import { type Text } from '@tsrun/training'

/** Converts between texts and tokens. */
export interface Tokenizer {
  /** The number of different tokens. */
  readonly vocabulary: number
  encode(text: string): number[]
  decode(tokens: ArrayLike<number>): string
  /**
   * Tokenizes a text for `textBatch` and `textBatches`. Tokens are in the smallest sufficient array type.
   */
  tokenize(text: string): Text
}

/**
 * The exports of `@huggingface/tokenizers` that this package uses. The declarations in that package refer
 * to paths that exist only in its own build.
 */
interface HubPackage {
  readonly Tokenizer: new (
    description: object,
    config: object,
  ) => {
    get_vocab(): ReadonlyMap<string, number>
    encode(text: string, options: { add_special_tokens: boolean }): { readonly ids: number[] }
    decode(tokens: number[], options: { skip_special_tokens: boolean }): string
  }
}

/**
 * Loads a tokenizer from a folder in the format of the Hugging Face Hub. Requires the package
 * `@huggingface/tokenizers` in your project. The folder must contain `tokenizer.json`;
 * `tokenizer_config.json` is optional.
 *
 * @throws ERR_TSR_DATASET when tokenizer.json is missing or invalid, ERR_TSR_PACKAGE_MISSING
 *
 * @example
 * const tokenizer = await loadTokenizer('gpt2')
 * const text = tokenizer.tokenize(await readFile('book.txt', 'utf8'))
 * const recipe = gpt({ vocabulary: text.vocabulary })
 */
export async function loadTokenizer(folder: string): Promise<Tokenizer> {
  const { Tokenizer } = await importOptional(
    'Using a tokenizer',
    '@huggingface/tokenizers',
    async () => (await import('@huggingface/tokenizers')) as unknown as HubPackage,
  )
  const path = join(folder, 'tokenizer.json')
  try {
    const description = JSON.parse(readFileText(path)) as object
    const config = readConfig(join(folder, 'tokenizer_config.json'))
    const tokenizer = new Tokenizer(description, JSON.parse(config) as object)
    const ids = [...tokenizer.get_vocab().values()]
    const vocabulary = ids.reduce((largest, id) => Math.max(largest, id), 0) + 1
    const encode = (text: string) => tokenizer.encode(text, { add_special_tokens: false }).ids
    return {
      vocabulary,
      encode,
      decode: (tokens) => tokenizer.decode(Array.from(tokens), { skip_special_tokens: false }),
      tokenize: (text) => ({ tokens: arrayFor(vocabulary).from(encode(text)), vocabulary }),
    }
  } catch (error) {
    const { message: problem } = error as Error
    throw tsrError('ERR_TSR_DATASET', { path, problem }, { cause: error })
  }
}

function arrayFor(vocabulary: number) {
  if (vocabulary <= 2 ** 8) return Uint8Array
  return vocabulary <= 2 ** 16 ? Uint16Array : Uint32Array
}

function readConfig(path: string) {
  try {
    return readFileText(path)
  } catch {
    return '{}'
  }
}

/** Options of `trainTokenizer`. */
export interface TrainTokenizerOptions {
  /**
   * The largest number of tokens, at least 256. A text with few different pairs results in fewer tokens.
   */
  readonly vocabulary: number
  /** The smallest number of occurrences of a pair that becomes a token; default 2. */
  readonly minimum?: number
}

const readOptions = declareOptions({
  vocabulary: count({ from: 256 }),
  minimum: count({ from: 1 }).default(2),
} satisfies Rules<TrainTokenizerOptions>)

/** The pattern with which GPT-2 splits a text into words. A token never spans two words. */
const WORD = /'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu

/**
 * Trains a byte-level BPE tokenizer like GPT-2's (Sennrich et al., 2016; Radford et al., 2019). It
 * repeatedly merges the most frequent pair of neighbouring tokens into a new token. The result
 * equals that of Python's `tokenizers.ByteLevelBPETokenizer`.
 *
 * @param folder - the folder in which `tokenizer.json` is written; `loadTokenizer` and Python can
 *   load it
 * @throws ERR_TSR_ARGUMENT, ERR_TSR_PACKAGE_MISSING without `@huggingface/tokenizers`
 *
 * @example
 * const tokenizer = await trainTokenizer(book, 'tokenizer', { vocabulary: 1000 })
 * const text = tokenizer.tokenize(book)
 */
export async function trainTokenizer(
  text: string,
  folder: string,
  options: TrainTokenizerOptions,
): Promise<Tokenizer> {
  const { vocabulary, minimum } = readOptions(options)
  const symbols = byteSymbols()
  const tokens = [...symbols].sort()
  const idOfByte = symbols.map((symbol) => tokens.indexOf(symbol))
  const merges = findMerges(countWords(text, idOfByte), tokens, { vocabulary, minimum })
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true }
  const description = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { ...byteLevel, use_regex: true },
    post_processor: { ...byteLevel, trim_offsets: false, use_regex: true },
    decoder: { ...byteLevel, use_regex: true },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      fuse_unk: false,
      byte_fallback: false,
      continuing_subword_prefix: '',
      end_of_word_suffix: '',
      ignore_merges: false,
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges,
    },
  }
  makeFolders(folder)
  replaceFile(join(folder, 'tokenizer.json'), JSON.stringify(description), 0o666)
  return await loadTokenizer(folder)
}

/** Returns the printable character that represents each byte value in a vocabulary, as in GPT-2. */
function byteSymbols() {
  let next = 256
  return Array.from({ length: 256 }, (_, byte) => {
    const isPrintable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173)
    return String.fromCodePoint(isPrintable ? byte : next++)
  })
}

interface Word {
  ids: number[]
  readonly count: number
}

function countWords(text: string, idOfByte: readonly number[]): Word[] {
  const counts = new Map<string, number>()
  for (const [word] of text.matchAll(WORD)) counts.set(word, (counts.get(word) ?? 0) + 1)
  return Array.from(counts, ([word, count]) => {
    return { ids: Array.from(Buffer.from(word), (byte) => idOfByte[byte]!), count }
  })
}

/** A pair of neighbouring tokens: its number of occurrences, and the words that contain it. */
interface Pair {
  readonly left: number
  readonly right: number
  count: number
  readonly words: Set<Word>
}

/** Appends new tokens to the list. @returns the pairs that were merged */
function findMerges(
  words: readonly Word[],
  tokens: string[],
  { vocabulary, minimum }: Required<TrainTokenizerOptions>,
) {
  const pairs = new Map<number, Pair>()
  const add = (word: Word, sign: 1 | -1) => {
    for (let i = 1; i < word.ids.length; i++) {
      const [left, right] = [word.ids[i - 1]!, word.ids[i]!]
      const key = left * vocabulary + right
      const pair = pairs.get(key) ?? { left, right, count: 0, words: new Set() }
      pairs.set(key, pair)
      pair.count += sign * word.count
      pair.words.add(word)
      if (pair.count === 0) pairs.delete(key)
    }
  }
  for (const word of words) add(word, 1)
  const merges: [string, string][] = []
  while (tokens.length < vocabulary) {
    const best = mostFrequent(pairs.values())
    if (best === undefined || best.count < minimum) break
    const { left, right } = best
    const id = tokens.push(tokens[left]! + tokens[right]!) - 1
    merges.push([tokens[left]!, tokens[right]!])
    for (const word of [...best.words]) {
      add(word, -1)
      word.ids = merged(word.ids, left, right, id)
      add(word, 1)
    }
  }
  return merges
}

/**
 * Returns the most frequent pair. If several pairs are equally frequent, returns the one with the oldest
 * tokens.
 */
function mostFrequent(pairs: Iterable<Pair>) {
  let best: Pair | undefined
  for (const pair of pairs) {
    const isBetter =
      best === undefined ||
      pair.count > best.count ||
      (pair.count === best.count &&
        (pair.left < best.left || (pair.left === best.left && pair.right < best.right)))
    if (isBetter) best = pair
  }
  return best
}

function merged(ids: readonly number[], left: number, right: number, id: number) {
  const next: number[] = []
  for (const each of ids) {
    if (each === right && next.at(-1) === left) next[next.length - 1] = id
    else next.push(each)
  }
  return next
}
