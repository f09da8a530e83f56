import { formatSeconds, ProgressLine } from '@tsrun/core'
import type { LatestCheckpoint } from '../checkpoint/folders.ts'
import type { Evaluation } from '../parallel/pipeline/options.ts'
import type { StepInfo } from './callbacks.ts'

interface ProgressFacts {
  /** The total number of steps at which training ends, or Infinity. */
  readonly steps: number
  /** The number of steps before this call of `fit`. */
  readonly first: number
  readonly unit: { readonly tokens: number } | undefined
  readonly flops: number | undefined
}

/** Prints step, loss, learning rate, speed and remaining time. */
export class FitProgress {
  readonly #isOn: boolean
  readonly #facts: ProgressFacts
  readonly #output = new ProgressLine()
  /**
   * The time at the end of the first step, which is excluded from the speed because it includes
   * compilation.
   */
  #begin: number | undefined
  #at = 0
  #examples = 0
  #counted = 0
  #last: StepInfo | undefined

  constructor(isOn: boolean, facts: ProgressFacts) {
    this.#isOn = isOn
    this.#facts = facts
  }

  /** @param checkpoint - the checkpoint that training resumes from */
  resumed({ path, skipped }: LatestCheckpoint): void {
    if (!this.#isOn) return
    const { first, steps } = this.#facts
    const left = first >= steps ? ', where nothing is left to train' : ''
    const [newest] = skipped
    const but = newest === undefined ? '' : `; ${newest.path} cannot be used: ${newest.problem}`
    this.#output.log(`resumes after step ${first} from ${path}${left}${but}`)
  }

  /** @param by - a signal, or `callback` */
  stopped(by: string, step: number): void {
    if (!this.#isOn) return
    this.#output.log(`stopped by ${by === 'callback' ? 'a callback' : by} after step ${step}`)
  }

  step(info: StepInfo): void {
    if (!this.#isOn) return
    this.#last = info
    this.#at = performance.now()
    if (this.#begin === undefined) this.#begin = this.#at
    else {
      this.#examples += info.examples
      this.#counted++
    }
    this.#output.update(() => this.#line(info))
  }

  evaluated({ loss, accuracy }: Evaluation): void {
    if (!this.#isOn) return
    // Exclude the time of evaluations from the speed.
    const now = performance.now()
    if (this.#begin !== undefined) this.#begin += now - this.#at
    this.#at = now
    const right = Number.isFinite(accuracy) ? `  accuracy ${(100 * accuracy).toFixed(2)} %` : ''
    const step = this.#last === undefined ? '' : `step ${this.#last.step}  `
    this.#output.log(`${step}evaluation: loss ${short(loss)}${right}`)
  }

  /** Ends the last line, so that it remains on the screen. */
  end(): void {
    if (!this.#isOn || this.#last === undefined) return
    this.#output.log(this.#line(this.#last))
  }

  #line({ step, loss, learningRate }: StepInfo): string {
    const { steps, unit, flops, first } = this.#facts
    const seconds = (this.#at - this.#begin!) / 1000
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
}

function grouped(value: number): string {
  return Math.round(value).toLocaleString('en-US')
}

function short(loss: number): string {
  return Number.isFinite(loss) ? loss.toPrecision(4) : String(loss)
}
