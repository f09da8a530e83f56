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
export function fitProgress({ steps, first, unit, flops }: ProgressFacts) {
  const output = new ProgressLine()
  /**
   * The time at the end of the first step, which is excluded from the speed because it includes
   * compilation.
   */
  let begin: number | undefined
  let [at, examples, counted] = [0, 0, 0]
  let last: StepInfo | undefined

  const line = ({ step, loss, learningRate }: StepInfo) => {
    const seconds = (at - begin!) / 1000
    const perSecond = seconds === 0 ? 0 : examples / seconds
    const of = Number.isFinite(steps) ? `/${steps}` : ''
    const speed =
      unit === undefined
        ? `${grouped(perSecond)} examples/s`
        : `${grouped(perSecond * unit.tokens)} tokens/s`
    const left = ((steps - step) * seconds) / Math.max(1, step - first - 1)
    const isKnown = Number.isFinite(left) && left > 0 && counted > 0
    const parts = [
      `step ${step}${of}`,
      `loss ${short(loss)}`,
      learningRate !== undefined && `rate ${learningRate.toPrecision(2)}`,
      counted > 0 && speed,
      flops !== undefined && `${((perSecond * flops) / 1e9).toFixed(1)} GFLOP/s`,
      isKnown && `${formatSeconds(left)} left`,
    ]
    return parts.filter((part) => part !== false).join('  ')
  }
  return {
    /** @param checkpoint - the checkpoint that training resumes from */
    resumed({ path, skipped: [newest] }: LatestCheckpoint) {
      const left = first >= steps ? ', where nothing is left to train' : ''
      const but = newest === undefined ? '' : `; ${newest.path} cannot be used: ${newest.problem}`
      output.log(`resumes after step ${first} from ${path}${left}${but}`)
    },
    /** @param by - a signal, or `callback` */
    stopped(by: string, step: number) {
      output.log(`stopped by ${by === 'callback' ? 'a callback' : by} after step ${step}`)
    },
    step(info: StepInfo) {
      last = info
      at = performance.now()
      if (begin === undefined) begin = at
      else {
        examples += info.examples
        counted++
      }
      output.update(() => line(info))
    },
    evaluated({ loss, accuracy }: Evaluation) {
      // Exclude the time of evaluations from the speed.
      const now = performance.now()
      if (begin !== undefined) begin += now - at
      at = now
      const right = Number.isFinite(accuracy) ? `  accuracy ${(100 * accuracy).toFixed(2)} %` : ''
      const step = last === undefined ? '' : `step ${last.step}  `
      output.log(`${step}evaluation: loss ${short(loss)}${right}`)
    },
    end() {
      if (last !== undefined) output.log(line(last))
    },
  }
}

function grouped(value: number): string {
  return Math.round(value).toLocaleString('en-US')
}

function short(loss: number): string {
  return Number.isFinite(loss) ? loss.toPrecision(4) : String(loss)
}
