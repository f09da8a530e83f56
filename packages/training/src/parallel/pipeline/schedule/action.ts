import { tsrError } from '@tsrun/core'

/**
 * What a stage does with a micro-batch: `F` forward, `B` the whole backward, or its two halves
 * `I` (gradient of the input) and `W` (gradients of the weights).
 */
export type ActionKind = 'F' | 'B' | 'I' | 'W'

export interface Action {
  readonly kind: ActionKind
  readonly stage: number
  readonly microbatch: number
}

/** The actions of every rank, each list in the order in which its rank runs it. */
export type ActionLists = readonly (readonly Action[])[]

/** `0F3`: stage 0, forward, micro-batch 3. */
export function formatAction({ stage, kind, microbatch }: Action): string {
  return `${stage}${kind}${microbatch}`
}

/**
 * Reads one action.
 *
 * @param place - where it stands, for the error
 * @throws ERR_TSR_SCHEDULE when `text` is none
 */
export function parseAction(text: string, place = ''): Action {
  const match = /^(\d{1,6})([FBIW])(\d{1,6})$/.exec(text)
  if (match === null) {
    const expected = /(SEND|RECV|SHARD|REDUCE)/.test(text)
      ? 'leave out messages, they follow from the others'
      : 'write stage, F, B, I or W, micro-batch, as in 0F3'
    throw tsrError('ERR_TSR_SCHEDULE', {
      problem: `${place}${JSON.stringify(text)} is no action; ${expected}`,
    })
  }
  const [, stage, kind, microbatch] = match
  return { stage: Number(stage), kind: kind as ActionKind, microbatch: Number(microbatch) }
}

/**
 * One line a rank, actions parted by spaces.
 *
 * @example
 * formatActions(schedule('gpipe', { stages: 2, microbatches: 1 }).actions) // '0F0 0B0\n1F0 1B0'
 */
export function formatActions(actions: ActionLists): string {
  return actions.map((list) => list.map(formatAction).join(' ')).join('\n')
}
