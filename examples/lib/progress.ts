/** Milliseconds between two lines where there is no terminal to write over the last one. */
const LINE_EVERY = 3000
const REDRAW_EVERY = 100

/** One line that shows how far the work is: in place on a terminal, else a line now and then. */
export class Progress {
  readonly #inPlace = process.stdout.isTTY
  #shown = performance.now()
  #open = false

  /** @param describe - makes the text, called only when it will be shown */
  update(describe: () => string): void {
    const now = performance.now()
    if (now - this.#shown < (this.#inPlace ? REDRAW_EVERY : LINE_EVERY)) return
    this.#shown = now
    if (this.#inPlace) process.stdout.write(`\r${describe()}\x1b[K`)
    else console.log(describe())
    this.#open = this.#inPlace
  }

  /** Prints a line of its own below. */
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
