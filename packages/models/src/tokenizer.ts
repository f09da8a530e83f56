import { join } from 'node:path'
import { importOptional, readFileText, tsrError } from '@tsrun/core'
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
