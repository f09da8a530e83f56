import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { argumentError, makeFolders, readFileBytes } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import {
  writeSafetensors,
  type CheckpointState,
  type Piece,
  type TensorData,
} from '@tsrun/training'
import {
  checkPlace,
  describe,
  gatherModel,
  onAllRanks,
  ownersOf,
  sizeOf,
  writeDurably,
} from '@tsrun/training/parts'
import { gptNames, type CompleteGPTOptions } from './gpt.ts'
import { gpt2Config, type TextEnds } from './pretrained-gpt.ts'

interface Trained {
  readonly state: CheckpointState
  readonly layout?: { readonly world: ProcessGroup }
}

/** What `exportPretrained` writes. */
export interface ExportedState {
  /**
   * The model: a `GPT`, a pipeline of its parts, or the result of `fullyShard` or `trainer()` for
   * one of these.
   */
  readonly model: CheckpointState['model'] | Trained
  /** The recipe of the model: `gpt(...)`, or the result of `pretrainedGPT`. */
  readonly recipe: { readonly options: CompleteGPTOptions; readonly textEnds?: TextEnds }
  /** A folder from which tokenizer files are copied, for example the folder of the fine-tuned model. */
  readonly tokenizer?: string
}

const TOKENIZER_FILES = [
  'tokenizer.json',
  'tokenizer_config.json',
  'vocab.json',
  'merges.txt',
  'special_tokens_map.json',
  'added_tokens.json',
]

/** A file that is copied with the tokenizer. It has the end token and sampling options. */
const GENERATION = 'generation_config.json'

/**
 * Writes a `GPT` as a folder that Python's `transformers` loads: `config.json` and a single file
 * `model.safetensors` in float32. The `GPT` may be divided among ranks in any way, and all ranks
 * that hold a part must call it. Rank 0 of the group writes, and needs memory for the whole model.
 *
 * @param ranks - all ranks that hold a part; default: the ranks of the trainer, or only this process
 *
 * @example
 * await exportPretrained('my-gpt2', { model: pipe, recipe, tokenizer: 'gpt2' }, group)
 * // in Python: transformers.GPT2LMHeadModel.from_pretrained('my-gpt2')
 *
 * @throws ERR_TSR_ARGUMENT, also for a folder without a tokenizer; ERR_TSR_CHECKPOINT_PIECES when
 *   the ranks do not hold the whole model; ERR_TSR_NOT_FINITE; errors of the file system. If one
 *   rank throws, all ranks throw
 */
export async function exportPretrained(
  directory: string,
  { model, recipe, tokenizer }: ExportedState,
  ranks?: ProcessGroup,
): Promise<void> {
  const trained = 'state' in model ? model : undefined
  const group = ranks ?? trained?.layout?.world
  checkPlace(directory, group)
  const [owner] = ownersOf({ model: 'state' in model ? model.state.model : model })
  const options = (recipe as Partial<ExportedState['recipe']> | undefined)?.options
  if (options === undefined) {
    throw argumentError('recipe', describe(recipe), 'gpt(...), or the result of pretrainedGPT')
  }
  const reads = tokenizer !== undefined && (group?.rank ?? 0) === 0
  const [copied = []] = await onAllRanks(group, 'exportPretrained', () =>
    reads ? tokenizerIn(tokenizer) : [],
  )
  const whole = await gatherModel('exportPretrained', owner!, gptNames(options), group)
  await onAllRanks(group, 'exportPretrained', async () => {
    if (whole === undefined) return
    makeFolders(directory)
    // `transformers` requires the framework's name in the metadata of the file.
    await writeSafetensors(join(directory, 'model.safetensors'), asGPT2(whole), { format: 'pt' })
    const content = gpt2Config(options, recipe.textEnds)
    const config = Buffer.from(`${JSON.stringify(content, null, 2)}\n`)
    await writeDurably(join(directory, 'config.json'), (file) => file.writeFile(config))
    // Do not use copyFile: it also copies permissions, which some file systems do not support.
    for (const name of copied) {
      const content = readFileBytes(join(tokenizer!, name))
      await writeDurably(join(directory, name), (file) => file.writeFile(content))
    }
  })
}

/**
 * Converts parameters to the names and shapes in GPT-2 files, in which joint attention weights are
 * matrices.
 */
function asGPT2(whole: ReadonlyMap<string, Piece>): Map<string, TensorData> {
  return new Map(
    Array.from(whole, ([name, { shape, values }]) => {
      const isJoint = /\.c_attn\.(weight|bias)$/.test(name)
      const joined = isJoint ? [...shape.slice(0, -2), sizeOf(shape.slice(-2))] : shape
      return [name === 'lm_head.weight' ? name : `transformer.${name}`, { shape: joined, values }]
    }),
  )
}

/**
 * Returns the names of the tokenizer files to copy.
 *
 * @throws ERR_TSR_ARGUMENT for a folder without a tokenizer
 */
function tokenizerIn(folder: string): readonly string[] {
  const found = [...TOKENIZER_FILES, GENERATION].filter((name) => existsSync(join(folder, name)))
  if (found[0] !== undefined && found[0] !== GENERATION) return found
  throw argumentError(
    'tokenizer',
    folder,
    `a folder with files of a tokenizer, such as ${TOKENIZER_FILES[0]!}`,
  )
}
