// What examples print: progress, figures, a curve, and the line with their result.

/** Milliseconds between two lines if there is no terminal, on which a line can be overwritten. */
const LINE_EVERY = 3000
const REDRAW_EVERY = 100

/** Shows the progress: in one line that is overwritten on a terminal, otherwise in a line every few seconds. */
export class Progress {
  readonly #inPlace = process.stdout.isTTY
  #shown = performance.now()
  #open = false

  /** @param describe - returns the text; called only if it is shown */
  update(describe: () => string): void {
    const now = performance.now()
    if (now - this.#shown < (this.#inPlace ? REDRAW_EVERY : LINE_EVERY)) return
    this.#shown = now
    if (this.#inPlace) process.stdout.write(`\r${describe()}\x1b[K`)
    else console.log(describe())
    this.#open = this.#inPlace
  }

  /** Prints a line that stays. */
  log(text: string): void {
    if (this.#open) process.stdout.write('\r\x1b[K')
    this.#open = false
    console.log(text)
  }
}

/** `95.5 %` */
export function percent(share: number, digits = 1): string {
  return `${(share * 100).toFixed(digits)} %`
}

/** `8,350` */
export function grouped(value: number): string {
  return Math.round(value).toLocaleString('en-US')
}

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
