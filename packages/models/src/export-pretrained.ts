import { join } from 'node:path'
import { argumentError, makeFolders } from '@tsrun/core'
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

/** The input of `exportPretrained`. */
export interface ExportedState {
  /**
   * The model: a `GPT`, a pipeline of its parts, or the result of `fullyShard` or `trainer()` for
   * one of these.
   */
  readonly model: CheckpointState['model'] | Trained
  /** The recipe of the model: `gpt(...)`, or the result of `pretrainedGPT`. */
  readonly recipe: { readonly options: CompleteGPTOptions; readonly textEnds?: TextEnds }
}

/**
 * Writes a `GPT` as a folder that Python's `transformers` loads: `config.json` and a single file
 * `model.safetensors` in float32. The `GPT` may be divided among ranks in any way, and all ranks
 * that hold a part must call it. Rank 0 of the group writes, and needs memory for the whole model.
 *
 * @param ranks - all ranks that hold a part; default: the ranks of the trainer, or only this process
 *
 * @example
 * await exportPretrained('my-gpt2', { model: pipe, recipe }, group)
 * // in Python: transformers.GPT2LMHeadModel.from_pretrained('my-gpt2')
 *
 * @throws ERR_TSR_ARGUMENT; ERR_TSR_CHECKPOINT_PIECES when the ranks do not hold the whole model;
 *   ERR_TSR_NOT_FINITE; errors of the file system. If one rank throws, all ranks throw
 */
export async function exportPretrained(
  directory: string,
  { model, recipe }: ExportedState,
  ranks?: ProcessGroup,
): Promise<void> {
  const { state, layout }: Trained = 'state' in model ? model : { state: { model } }
  const group = ranks ?? layout?.world
  checkPlace(directory, group)
  const [owner] = ownersOf({ model: state.model })
  const options = (recipe as Partial<ExportedState['recipe']> | undefined)?.options
  if (options === undefined) {
    throw argumentError('recipe', describe(recipe), 'gpt(...), or the result of pretrainedGPT')
  }
  const whole = await gatherModel('exportPretrained', owner!, gptNames(options), group)
  await onAllRanks(group, 'exportPretrained', async () => {
    if (whole === undefined) return
    makeFolders(directory)
    // `transformers` requires the framework's name in the metadata of the file.
    await writeSafetensors(join(directory, 'model.safetensors'), asGPT2(whole), { format: 'pt' })
    const content = gpt2Config(options, recipe.textEnds)
    const config = Buffer.from(`${JSON.stringify(content, null, 2)}\n`)
    await writeDurably(join(directory, 'config.json'), (file) => file.writeFile(config))
  })
}

/** Converts to the format of GPT-2 files, where weights of queries, keys and values are one matrix. */
function asGPT2(whole: ReadonlyMap<string, Piece>): Map<string, TensorData> {
  return new Map(
    Array.from(whole, ([name, { shape, values }]) => {
      const isJoint = /\.c_attn\.(weight|bias)$/.test(name)
      const joined = isJoint ? [...shape.slice(0, -2), sizeOf(shape.slice(-2))] : shape
      return [name === 'lm_head.weight' ? name : `transformer.${name}`, { shape: joined, values }]
    }),
  )
}
