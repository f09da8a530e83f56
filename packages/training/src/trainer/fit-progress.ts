import { formatSeconds } from '@tsrun/core'
import type { Evaluation } from '../parallel/pipeline/options.ts'
import type { StepInfo } from './callbacks.ts'

/** Milliseconds between two lines if there is no terminal, on which a line can be overwritten. */
const LINE_EVERY = 3000
const REDRAW_EVERY = 100

interface ProgressFacts {
  /** The number of steps after which training ends, or Infinity. */
  readonly steps: number
  /** The number of steps that were made before. */
  readonly first: number
  readonly unit: { readonly tokens: number } | undefined
  readonly flops: number | undefined
}

/**
 * Shows step, loss, learning rate, speed and the time that is left: in one line that is overwritten on a
 * terminal, in a line every few seconds elsewhere.
 */
export class FitProgress {
  readonly #isOn: boolean
  readonly #facts: ProgressFacts
  readonly #inPlace = process.stdout.isTTY
  #shown = performance.now()
  /** When the first step, which also compiles, was made. */
  #begin: number | undefined
  #examples = 0
  #counted = 0
  #isOpen = false
  #last: StepInfo | undefined

  constructor(isOn: boolean, facts: ProgressFacts) {
    this.#isOn = isOn
    this.#facts = facts
  }

  /** @param path - of the checkpoint that the training goes on from */
  resumed(path: string): void {
    if (!this.#isOn) return
    const { first, steps } = this.#facts
    const left = first >= steps ? ', where nothing is left to train' : ''
    this.#print(`goes on after step ${first} from ${path}${left}`, false)
  }

  /** @param by - a signal, or `callback` */
  stopped(by: string, step: number): void {
    if (this.#isOn)
      this.#print(`stopped by ${by === 'callback' ? 'a callback' : by} after step ${step}`, false)
  }

  step(info: StepInfo): void {
    if (!this.#isOn) return
    this.#last = info
    const now = performance.now()
    if (this.#begin === undefined) this.#begin = now
    else {
      this.#examples += info.examples
      this.#counted++
    }
    if (now - this.#shown < (this.#inPlace ? REDRAW_EVERY : LINE_EVERY)) return
    this.#shown = now
    this.#print(this.#line(info, now), this.#inPlace)
  }

  evaluated({ loss, accuracy }: Evaluation): void {
    if (!this.#isOn) return
    const right = Number.isFinite(accuracy) ? `  accuracy ${(100 * accuracy).toFixed(2)} %` : ''
    const step = this.#last === undefined ? '' : `step ${this.#last.step}  `
    this.#print(`${step}evaluation: loss ${short(loss)}${right}`, false)
  }

  /** Leaves the last line on the screen. */
  end(): void {
    if (!this.#isOn || this.#last === undefined) return
    this.#print(this.#line(this.#last, performance.now()), false)
  }

  #line({ step, loss, learningRate }: StepInfo, now: number): string {
    const { steps, unit, flops, first } = this.#facts
    const seconds = (now - this.#begin!) / 1000
    const perSecond = seconds === 0 ? 0 : this.#examples / seconds
    const of = Number.isFinite(steps) ? `/${steps}` : ''
    const speed =
      unit === undefined
        ? `${grouped(perSecond)} examples/s`
        : `${grouped(perSecond * unit.tokens)} tokens/s`
    const left = ((steps - step) * seconds) / Math.max(1, step - first - 1)
    const isKnown = Number.isFinite(left) && left > 0 && this.#counted > 0
    return [
      `step ${step}${of}`,
      `loss ${short(loss)}`,
      ...(learningRate === undefined ? [] : [`rate ${learningRate.toPrecision(2)}`]),
      ...(this.#counted === 0 ? [] : [speed]),
      ...(flops === undefined ? [] : [`${((perSecond * flops) / 1e9).toFixed(1)} GFLOP/s`]),
      ...(isKnown ? [`${formatSeconds(left)} left`] : []),
    ].join('  ')
  }

  #print(text: string, isOverwritten: boolean): void {
    const width = this.#inPlace ? (process.stdout.columns || 80) - 1 : Infinity
    const line = text.length > width ? text.slice(0, width) : text
    const before = this.#isOpen ? '\r' : ''
    const clear = this.#inPlace ? '\x1b[K' : ''
    process.stdout.write(`${before}${line}${clear}${isOverwritten ? '' : '\n'}`)
    this.#isOpen = isOverwritten
  }
}

function grouped(value: number): string {
  return Math.round(value).toLocaleString('en-US')
}

function short(loss: number): string {
  return Number.isFinite(loss) ? loss.toPrecision(4) : String(loss)
}
