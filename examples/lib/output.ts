// What examples print: figures, sentences, a curve, and the line with their result.

import { textWidth } from '@tsrun/core'

/** `95.5 %` */
export function percent(share: number, digits = 1): string {
  return `${(share * 100).toFixed(digits)} %`
}

/** The middle value, the upper one of two. */
export function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1]!
}

/** `8,350` */
export function grouped(value: number): string {
  return Math.round(value).toLocaleString('en-US')
}

/** The text behind a margin, in lines that the terminal has room for. */
export function wrap(text: string, margin = ''): string {
  const room = textWidth()
  const lines = [margin]
  for (const word of text.split(' ')) {
    const line = lines.at(-1)!
    const isFirst = line.length === margin.length
    if (isFirst || line.length + 1 + word.length <= room) {
      lines[lines.length - 1] = `${line}${isFirst ? '' : ' '}${word}`
    } else lines.push(`${' '.repeat(margin.length)}${word}`)
  }
  return lines.join('\n')
}

/** What the grid of a schedule shows. */
export const gridLegend =
  'F3 forward of micro-batch 3, B backward or its halves I and W, . idle;\n' +
  'before them the stage, where a rank has several.'

const LEVELS = '▁▂▃▄▅▆▇█'

/** Losses over steps as rows of text. Each column is the mean of the steps that it covers. */
export function drawCurve(losses: readonly number[], width = 64, height = 8): string {
  const columns = Math.min(width, losses.length)
  const means = Array.from({ length: columns }, (_, column) => {
    const [from, to] = [column, column + 1].map((i) => Math.floor((i * losses.length) / columns))
    const part = losses.slice(from, to)
    return part.reduce((sum, loss) => sum + loss, 0) / part.length
  })
  const [low, high] = [Math.min(...means), Math.max(...means)]
  const steps = height * LEVELS.length
  const heights = means.map((mean) =>
    Math.max(1, Math.round(((mean - low) / (high - low || 1)) * steps)),
  )
  const rows = Array.from({ length: height }, (_, i) => {
    const below = (height - 1 - i) * LEVELS.length
    const cells = heights.map((filled) => {
      const level = Math.min(LEVELS.length, filled - below)
      return level < 1 ? ' ' : LEVELS[level - 1]!
    })
    const label = i === 0 ? high.toFixed(2) : i === height - 1 ? low.toFixed(2) : ''
    return `${label.padStart(6)} |${cells.join('')}`
  })
  return `${rows.join('\n')}\n  step 1${' '.repeat(Math.max(1, columns - 4))}${losses.length}`
}

type Figure = number | string | boolean | readonly Figure[]

/** Prints the last line of every example: its figures as JSON, rounded to `digits` digits. */
export function printResult(figures: Readonly<Record<string, Figure>>, digits = 4): void {
  const short = (_key: string, value: unknown): unknown =>
    typeof value === 'number' ? Number(value.toPrecision(digits)) : value
  console.log(`result ${JSON.stringify(figures, short)}`)
}
