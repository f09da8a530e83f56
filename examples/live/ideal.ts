import { scheduleOf, type Layout, type LessonName } from './training.ts'

/** The bubble of each schedule in the literature, with S ranks and M micro-batches. */
const formulas: Readonly<Record<LessonName, [text: string, of: (s: number, m: number) => number]>> =
  {
    naive: ['(S−1)/S', (s) => (s - 1) / s],
    gpipe: ['(S−1)/(M+S−1)', (s, m) => (s - 1) / (m + s - 1)],
    '1f1b': ['(S−1)/(M+S−1)', (s, m) => (s - 1) / (m + s - 1)],
    interleaved: ['(S−1)/(2M+S−1)', (s, m) => (s - 1) / (2 * m + s - 1)],
    'zb-h1': ['(S−1)/(3M+S−1)', (s, m) => (s - 1) / (3 * m + s - 1)],
  }

/**
 * The share of a step in which the ranks are idle if all stages are equal, messages take no time, and a
 * backward pass takes twice as long as a forward pass, half of it for the gradient of the input.
 *
 * @returns the share from 0 to 1, and the formula of the literature if it gives this share
 */
export function idealOf(layout: Layout): {
  readonly bubble: number
  readonly formula: string | undefined
} {
  const { bubble } = scheduleOf(layout).simulate()
  const [text, of] = formulas[layout.lesson]
  const isExact = Math.abs(of(layout.ranks, layout.microbatches) - bubble) < 1e-9
  return { bubble, formula: isExact ? text : undefined }
}
