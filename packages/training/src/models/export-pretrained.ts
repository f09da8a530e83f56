import { access } from 'node:fs/promises'
import { join } from 'node:path'
import { makeFolders, readFileBytes, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { onAllRanks } from '../checkpoint/coordination.ts'
import { copyCommon, partSize, type Piece } from '../checkpoint/piece.ts'
import { checkFinite, factsOf, keyOf, planPieces, type PlannedPiece } from '../checkpoint/plan.ts'
import {
  writeAll,
  writeDurably,
  writeSafetensors,
  type TensorData,
} from '../checkpoint/safetensors/write.ts'
import { checkPlace, ownersOf, type CheckpointState } from '../checkpoint/state.ts'
import { withConflictError } from '../checkpoint/write.ts'
import { describe } from '../model/describe.ts'
import { gptNames, type CompleteGPTOptions } from '../nn/gpt.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { gpt2Config, type TextEnds } from './gpt2-config.ts'

/** A `Trainer`, with what it trains and on which ranks. */
interface Trained {
  readonly state: CheckpointState
  readonly layout?: { readonly world: ProcessGroup }
}

export interface ExportedState {
  /** A `GPT`, a pipeline of its parts, what `fullyShard` has made of one, or a `trainer()` of one. */
  readonly model: CheckpointState['model'] | Trained
  /** The recipe that it was built from: `gpt(...)`, or the result of `pretrainedGPT`. */
  readonly recipe: { readonly options: CompleteGPTOptions; readonly textEnds?: TextEnds }
  /** A folder whose tokenizer is copied, for example that of the model that was fine-tuned. */
  readonly tokenizer?: string
}

/** What belongs to a tokenizer on the Hugging Face Hub. */
const TOKENIZER_FILES = [
  ...['tokenizer.json', 'tokenizer_config.json', 'vocab.json', 'merges.txt'],
  ...['special_tokens_map.json', 'added_tokens.json'],
]

/** Copied with them: which token ends a text, how to draw. */
const GENERATION = 'generation_config.json'

/** The most values of a message. */
const CHUNK = 4 * 1024 * 1024

/**
 * Writes a `GPT` of any layout as a folder that `transformers` loads: `model.safetensors`, one file in
 * float32, and `config.json`. All ranks that hold a part call it; rank 0 of the group writes, and needs
 * memory for the whole model.
 *
 * @param ranks - all ranks that hold a part; default: those of the trainer, or this process alone
 *
 * @example
 * await exportPretrained('my-gpt2', { model: pipe, recipe, tokenizer: 'gpt2' }, group)
 * // in Python: transformers.GPT2LMHeadModel.from_pretrained('my-gpt2')
 *
 * @throws ERR_TSR_ARGUMENT, also for a folder without a tokenizer; ERR_TSR_CHECKPOINT_PIECES when the
 *   ranks do not hold the whole model; ERR_TSR_NOT_FINITE; errors of the file system. If one rank throws, all do.
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
    const expected = 'gpt(...), or the result of pretrainedGPT'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'recipe', value: describe(recipe), expected })
  }
  let own: readonly Piece[] = []
  let copied: readonly string[] = []
  const held = await onAllRanks(group, async () => {
    // Only rank 0 needs to have the folder.
    if (tokenizer !== undefined && (group?.rank ?? 0) === 0) copied = await tokenizerIn(tokenizer)
    own = uniquePieces(await owner!.pieces())
    checkFinite(own)
    return own.map((piece) => factsOf(piece, false))
  })
  const plan = planPieces(held)
  checkComplete(plan, options)
  const whole = await gatherPieces(own, plan, group)
  await onAllRanks(group, async () => {
    if (whole === undefined) return
    makeFolders(directory)
    // transformers wants to know from which framework a file is
    await withConflictError(group, directory, async () => {
      await writeSafetensors(join(directory, 'model.safetensors'), asGPT2(whole), {
        format: 'pt',
      })
      const content = gpt2Config(options, recipe.textEnds)
      const config = Buffer.from(`${JSON.stringify(content, null, 2)}\n`)
      await writeDurably(join(directory, 'config.json'), (file) => writeAll(file, config))
    })
    // A copy by copyFile has the rights of the original, which some file systems cannot give.
    for (const name of copied) {
      const content = readFileBytes(join(tokenizer!, name))
      await writeDurably(join(directory, name), (file) => writeAll(file, content))
    }
  })
}

/** A tied parameter may be in the list twice. */
function uniquePieces(pieces: readonly Piece[]): Piece[] {
  return [...new Map(pieces.map((piece) => [keyOf(factsOf(piece, false)), piece])).values()]
}

/** @returns the whole tensors by name, on rank 0 */
async function gatherPieces(
  own: readonly Piece[],
  plan: readonly PlannedPiece[],
  group: ProcessGroup | undefined,
): Promise<Map<string, Piece> | undefined> {
  const { rank } = group ?? { rank: 0 }
  const mine = new Map(own.map((piece) => [keyOf(factsOf(piece, false)), piece]))
  const whole = new Map<string, Piece>()
  for (const planned of plan) {
    const { name, shape, key } = planned
    const isSent = planned.rank !== 0
    if (rank !== 0) {
      if (planned.rank === rank) await sendAll(mine.get(key)!.values as Float32Array, group!)
      continue
    }
    const piece = isSent
      ? { ...planned, values: await receiveAll(partSize(planned), planned.rank, group!) }
      : mine.get(key)!
    const tensor = whole.get(name) ?? { name, shape, values: new Float32Array(sizeOf(shape)) }
    whole.set(name, tensor)
    copyCommon(piece, tensor)
  }
  return rank === 0 ? whole : undefined
}

async function sendAll(values: Float32Array, group: ProcessGroup): Promise<void> {
  for (let at = 0; at < values.length; at += CHUNK) {
    await group.send(values.subarray(at, at + CHUNK), 0, { label: 'export' })
  }
}

async function receiveAll(
  length: number,
  from: number,
  group: ProcessGroup,
): Promise<Float32Array> {
  const values = new Float32Array(length)
  for (let at = 0; at < length; at += CHUNK) {
    await group.recv(values.subarray(at, at + CHUNK), from, { label: 'export' })
  }
  return values
}

/** Under the names and in the shapes of GPT-2, whose joint weights are matrices. */
function asGPT2(whole: ReadonlyMap<string, Piece>): Map<string, TensorData> {
  return new Map(
    Array.from(whole, ([name, { shape, values }]) => {
      const isJoint = /\.c_attn\.(weight|bias)$/.test(name)
      const joined = isJoint ? [...shape.slice(0, -2), sizeOf(shape.slice(-2))] : shape
      return [name === 'lm_head.weight' ? name : `transformer.${name}`, { shape: joined, values }]
    }),
  )
}

/** @throws ERR_TSR_CHECKPOINT_PIECES when a parameter is missing, as with a stage without the others */
function checkComplete(plan: readonly PlannedPiece[], options: CompleteGPTOptions): void {
  const names = new Set(plan.map(({ name }) => name))
  const missing = gptNames(options).filter((name) => !names.has(name))
  if (missing.length === 0) return
  throw tsrError('ERR_TSR_CHECKPOINT_PIECES', {
    tensor: missing[0]!,
    problem: `no rank has it, nor ${missing.length - 1} others of the recipe; pass the group of all ranks that hold a part`,
  })
}

/**
 * The files to copy.
 *
 * @throws ERR_TSR_ARGUMENT for a folder without a tokenizer
 */
async function tokenizerIn(folder: string): Promise<readonly string[]> {
  const isThere = async (name: string): Promise<boolean> =>
    await access(join(folder, name)).then(
      () => true,
      () => false,
    )
  const found: string[] = []
  for (const name of TOKENIZER_FILES) if (await isThere(name)) found.push(name)
  if (found.length === 0) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'tokenizer',
      value: folder,
      expected: `a folder with files of a tokenizer, such as ${TOKENIZER_FILES[0]!}`,
    })
  }
  return (await isThere(GENERATION)) ? [...found, GENERATION] : found
}
