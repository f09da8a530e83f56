import { tsrError, type TsrError } from '@tsrun/core'

/**
 * The kind of a pass: `F` is a forward pass, and `B` a whole backward pass. The halves of a backward pass
 * are `I` (gradient of the input) and `W` (gradients of the weights).
 */
export type ActionKind = 'F' | 'B' | 'I' | 'W'

/** A pass of one stage for one micro-batch. */
export interface Action {
  readonly kind: ActionKind
  readonly stage: number
  readonly microbatch: number
}

/** One list of actions per rank, in the order in which the rank runs them. */
export type ActionLists = readonly (readonly Action[])[]

export function act(kind: ActionKind, stage: number, microbatch: number): Action {
  return { kind, stage, microbatch }
}

/** Returns the largest number of micro-batches whose activations a rank holds at one time. */
export function peakInFlight(actions: readonly Action[]): number {
  let [inFlight, peak] = [0, 0]
  for (const { kind } of actions) {
    inFlight += { F: 1, B: -1, I: 0, W: -1 }[kind]
    peak = Math.max(peak, inFlight)
  }
  return peak
}

/** Formats an action as text: `0F3` stands for stage 0, forward pass, micro-batch 3. */
export function formatAction({ stage, kind, microbatch }: Action): string {
  return `${stage}${kind}${microbatch}`
}

/** An action, the rank that runs it, and its index in that rank's list. */
export interface PlacedAction extends Action {
  readonly rank: number
  readonly position: number
}

/** Returns the number of stages and micro-batches in lists of actions, and the rank of each stage. */
export function extentOf(actions: ActionLists) {
  const rankOfStage: number[] = []
  let microbatches = 0
  actions.forEach((list, rank) => {
    for (const { stage, microbatch } of list) {
      rankOfStage[stage] ??= rank
      microbatches = Math.max(microbatches, microbatch + 1)
    }
  })
  return { stages: rankOfStage.length, microbatches, rankOfStage }
}

type Product = 'activation' | 'gradient'

const nameOf = (product: Product, stage: number, microbatch: number) =>
  `the ${product} of stage ${stage}, micro-batch ${microbatch}`

/** Names the result that other actions need: the stage's output, or the gradient of its input. */
export function productOf({ kind, stage, microbatch }: Action): string | undefined {
  if (kind === 'W') return undefined
  return nameOf(kind === 'F' ? 'activation' : 'gradient', stage, microbatch)
}

/** Names the results that an action needs before it can run. */
export function needsOf({ kind, stage, microbatch }: Action, stages: number): string[] {
  const activation = (of: number) => nameOf('activation', of, microbatch)
  const gradient = (of: number) => nameOf('gradient', of, microbatch)
  switch (kind) {
    case 'F':
      return stage === 0 ? [] : [activation(stage - 1)]
    case 'B':
    case 'I':
      return stage === stages - 1 ? [activation(stage)] : [activation(stage), gradient(stage + 1)]
    case 'W':
      return [gradient(stage)]
  }
}

/**
 * Parses one action.
 *
 * @param place - the place of the text in its file, for error messages
 * @throws ERR_TSR_SCHEDULE when `text` is not an action
 */
export function parseAction(text: string, place = ''): Action {
  const match = /^(\d{1,6})([FBIW])(\d{1,6})$/.exec(text)
  if (match === null) {
    const expected = 'write stage, F, B, I or W, micro-batch, as in 0F3, and leave out messages'
    throw scheduleError(`${place}${JSON.stringify(text)} is not an action; ${expected}`)
  }
  const [, stage, kind, microbatch] = match
  return { stage: Number(stage), kind: kind as ActionKind, microbatch: Number(microbatch) }
}

/**
 * Formats lists of actions as text: one line per rank, with spaces between the actions.
 *
 * @example
 * formatActions(schedule('gpipe', { stages: 2, microbatches: 1 }).actions) // '0F0 0B0\n1F0 1B0'
 */
export function formatActions(actions: ActionLists): string {
  return actions.map((list) => list.map(formatAction).join(' ')).join('\n')
}

/**
 * Parses lists of actions: one line per rank, with spaces or commas between the actions. Blank lines and
 * empty cells (as in PyTorch's schedule files) are skipped, and so is the rest of a line after `#`.
 *
 * @throws ERR_TSR_SCHEDULE naming the rank, the position and the text of the invalid action
 */
export function parseActions(text: string): Action[][] {
  return text
    .split(/\r?\n/)
    .map((line) => line.replace(/#.*/, '').trim())
    .filter((line) => line !== '')
    .map((line, rank) =>
      line
        .split(/[\s,]+/)
        .filter((word) => word !== '')
        .map((word, position) => parseAction(word, placeOf(rank, position))),
    )
}

/** Returns the place of an action in the lists, for error messages. */
export function placeOf(rank: number, position: number): string {
  return `rank ${rank}, action ${position}: `
}

export function scheduleError(problem: string): TsrError {
  return tsrError('ERR_TSR_SCHEDULE', { problem })
}
