// The lessons of the course: how each is started, and which of its figures stand beside theory.
import { schedule } from '@tsrun/training/planning'

/**
 * @typedef {Readonly<Record<string, any>>} Figures - of the line `result {…}` of an example, and those that
 *   a lesson adds to the table of the course
 *
 * @typedef {object} Machine
 * @property {number} cores
 * @property {number} ranks - of the lessons that take any number
 *
 * @typedef {object} Shown
 * @property {string} [theory]
 * @property {string} measured
 * @property {string} [bound] - how far the measurement may be from theory
 * @property {boolean} [isMet] - whether a measurement of time is within its bound
 * @property {boolean} [isRight] - false if numbers differ that must be equal on any machine
 * @property {number} [loss] - the last one
 *
 * @typedef {object} Lesson
 * @property {string} title
 * @property {string} script - below examples/
 * @property {readonly string[]} [args]
 * @property {number} [ranks] - default: those of the machine; 0: it starts without tsrun
 * @property {(figures: Figures, machine: Machine, former: (title: string) => Figures | undefined) => Shown} show
 *   `former` finds the figures of a lesson that ran before
 */

/** The largest share by which losses of the same training may differ: the rounding of float32. */
export const ROUNDING = 1e-5
/** How far an idle share may be from theory. */
const POINTS = 0.08
/** The share of the ideal speed that data parallel training must reach. */
const SPEED = 0.75
/** Below this share of the time of 1F1B, a schedule is predicted to be faster. */
const FASTER = 0.98

const share = (/** @type {number} */ value) => `${(100 * value).toFixed(0)} %`
const mebibytes = (/** @type {number} */ bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`
/** The bytes in a rank's ledger, and the bytes by which its process grew. */
const ledger = (/** @type {number} */ bytes, /** @type {number} */ process) =>
  `${(bytes / 2 ** 20).toFixed(1)} of ${rounded(process / 2 ** 20)} MiB`
const rounded = (/** @type {number} */ value) => Math.round(value).toLocaleString('en-US')
const times = (/** @type {number} */ value) => `${value.toFixed(2)} x`
const mean = (/** @type {readonly number[]} */ values) =>
  values.reduce((sum, value) => sum + value, 0) / values.length

/**
 * What is right if `difference` is 0, but for rounding.
 *
 * @param {number} difference
 * @param {number} [loss]
 * @returns {Shown}
 */
const asAlone = (difference, loss) => ({
  theory: 'equal',
  measured: difference === 0 ? 'equal' : `within ${difference.toExponential(0)}`,
  bound: ROUNDING.toExponential(0),
  isRight: difference <= ROUNDING,
  ...(loss !== undefined && { loss }),
})

/**
 * What is right if it holds.
 *
 * @param {boolean} isRight
 * @param {number} [loss]
 * @returns {Shown}
 */
const equal = (isRight, loss) => ({
  theory: 'equal',
  measured: isRight ? 'equal' : 'DIFFERENT',
  bound: 'equal',
  isRight,
  ...(loss !== undefined && { loss }),
})

/**
 * The idle share of a pipeline, beside theory.
 *
 * @param {number} theory
 * @param {number} measured
 * @param {string} [more] - shown with the measurement
 */
const idle = (theory, measured, more) => ({
  theory: `idle ${share(theory)}`,
  measured: more === undefined ? share(measured) : `${share(measured)}, ${more}`,
  bound: `${(100 * POINTS).toFixed(0)} points`,
  isMet: Math.abs(measured - theory) <= POINTS,
})

/** @typedef {'naive' | 'gpipe' | '1f1b'} Schedule */

/**
 * The idle share of a schedule of 8 micro-batches, with the cores of the machine. With a core for each
 * rank, it is that of the formula.
 *
 * @param {Schedule} name
 * @param {Machine} machine
 */
const bubbleOf = (name, { ranks, cores }) =>
  schedule(name, { stages: ranks, microbatches: 8 }).simulate({ cores }).bubble

/**
 * The idle share to compare a pipeline with: that of the formula if each rank has a core, otherwise what the
 * simulator predicts from the CPU times of its passes.
 *
 * @param {Schedule} name
 * @param {Machine} machine
 * @param {number} predicted
 */
const theoryOf = (name, machine, predicted) =>
  machine.cores < machine.ranks ? predicted : bubbleOf(name, machine)

/**
 * @param {Schedule} name
 * @returns {Lesson}
 */
const fromScratch = (name) => ({
  title: `scratch ${name}`,
  script: 'from-scratch/schedule.ts',
  args: [name],
  show: ({ losses, idles }, machine) => ({
    ...idle(bubbleOf(name, machine), mean(idles)),
    loss: losses.at(-1),
  }),
})

/**
 * @param {string} title
 * @param {Schedule} name
 * @param {string} script
 * @returns {Lesson}
 */
const pipelineLesson = (title, name, script) => ({
  title,
  script,
  show: ({ loss, idle: measured, predicted, bytes }, machine) => ({
    ...idle(theoryOf(name, machine, predicted), measured, mebibytes(Math.max(...bytes))),
    loss,
  }),
})

/**
 * One that compares schedules. The second is shown beside the first, 1F1B. With equal passes, the time of a
 * step is inversely proportional to the share of it in which the ranks compute.
 *
 * @param {string} title
 * @returns {Lesson}
 */
const comparison = (title) => ({
  title,
  script: `${title}.ts`,
  show: ({ loss, maxDifference, ideal, predicted, stepMs }, { ranks, cores }) => {
    const [plain, own] = cores < ranks ? predicted : ideal
    const theory = (1 - plain) / (1 - own)
    const measured = stepMs[1] / stepMs[0]
    return {
      theory: times(theory),
      measured: `${times(measured)} 1F1B`,
      ...(theory < FASTER && { bound: 'below 1', isMet: measured < 1 }),
      isRight: maxDifference <= ROUNDING,
      loss,
    }
  },
})

/** @type {(figures: Figures) => number} */
const imagesPerSecond = (figures) => figures['imagesPerSecond']

/** The losses of a program of the lecture, as means over the ranks that see them. */
const lectureLosses = (/** @type {Figures} */ { losses }) => {
  /** @type {number[][]} */
  const seen = losses.filter((/** @type {number[]} */ own) => own.length > 0)
  return (seen[0] ?? []).map((_, step) => mean(seen.map((own) => own[step] ?? NaN)))
}

/**
 * @param {string} kind
 * @returns {Lesson}
 */
const lecture = (kind) => ({
  title: `lecture/${kind}`,
  script: `lecture/${kind}-parallel.ts`,
  show: (figures, _, former) => {
    const losses = lectureLosses(figures)
    const loss = losses.at(-1) ?? NaN
    if (kind === 'data') return equal(figures['isSame'], loss)
    const others = former('lecture/data')
    if (others === undefined) return { measured: `${losses.length} steps`, loss }
    const wanted = lectureLosses(others)
    return asAlone(
      Math.max(...losses.map((each, step) => Math.abs(each / (wanted[step] ?? NaN) - 1))),
      loss,
    )
  },
})

/** @type {readonly Lesson[]} */
export const lessons = [
  fromScratch('naive'),
  fromScratch('gpipe'),
  fromScratch('1f1b'),
  {
    title: '01 monolith',
    script: '01-monolith.ts',
    ranks: 0,
    show: ({ loss, msPerStep }) => ({ measured: `${msPerStep.toFixed(0)} ms a step`, loss }),
  },
  {
    title: '02 split',
    script: '02-manual-split.ts',
    ranks: 0,
    show: ({ loss, maxDifference }) => asAlone(maxDifference, loss),
  },
  {
    title: '03 ping-pong',
    script: '03-ping-pong.ts',
    ranks: 2,
    show: ({ latencyUs, bandwidthGBs }) => ({
      measured: `${latencyUs.toFixed(1)} us, ${bandwidthGBs.toPrecision(2)} GB/s`,
    }),
  },
  pipelineLesson('04 naive', 'naive', '04-naive.ts'),
  pipelineLesson('05 gpipe', 'gpipe', '05-gpipe.ts'),
  pipelineLesson('06 1f1b', '1f1b', '06-1f1b.ts'),
  comparison('interleaved'),
  comparison('zero-bubble'),
  {
    title: 'pipeline',
    script: 'pipeline.ts',
    show: ({ accuracy, bubble, predictedBubble }, machine) =>
      idle(theoryOf('1f1b', machine, predictedBubble), bubble, `${share(accuracy)} right`),
  },
  {
    title: 'collectives',
    script: 'collectives.ts',
    show: ({ isSame }) => equal(isSame),
  },
  {
    title: 'benchmark',
    script: 'benchmark-collectives.ts',
    args: ['--elements', String(10 * 2 ** 20)],
    show: ({ allReduceBusbw }) => ({ measured: `${allReduceBusbw.toFixed(2)} GiB/s` }),
  },
  {
    title: 'one replica',
    script: 'data-parallel.ts',
    ranks: 1,
    show: (figures) => ({
      measured: `${rounded(imagesPerSecond(figures))} images/s`,
      loss: figures['loss'],
    }),
  },
  {
    title: 'data-parallel',
    script: 'data-parallel.ts',
    show: (figures, { ranks, cores }, former) => {
      const alone = former('one replica')
      const { loss } = figures
      if (alone === undefined) {
        return { measured: `${rounded(imagesPerSecond(figures))} images/s`, loss }
      }
      const ideal = Math.min(ranks, cores)
      const measured = imagesPerSecond(figures) / imagesPerSecond(alone)
      return {
        theory: times(ideal),
        measured: `${times(measured)} one rank`,
        ...(ideal > 1 && { bound: times(SPEED * ideal), isMet: measured >= SPEED * ideal }),
        loss,
      }
    },
  },
  {
    title: 'cnn',
    script: 'cnn.ts',
    args: ['--images', '20000'],
    show: ({ accuracy, loss }) => ({ measured: `${(100 * accuracy).toFixed(1)} % right`, loss }),
  },
  {
    title: 'parameter-server',
    script: 'parameter-server.ts',
    // With a single worker, no gradient would be stale.
    ranks: 4,
    show: ({ ranks, staleness }) => ({
      theory: `${ranks - 2} stale`,
      measured: `${staleness.toFixed(1)} stale`,
    }),
  },
  {
    title: 'tensor-parallel',
    script: 'tensor-parallel.ts',
    show: ({ gatheredFirst, pairedFirst, loss }) =>
      asAlone(Math.max(gatheredFirst, pairedFirst), loss),
  },
  {
    title: 'gpt',
    script: 'gpt.ts',
    args: ['--steps', '100', '--sample', '100'],
    show: ({ tokensPerSecond, loss }) => ({
      measured: `${rounded(tokensPerSecond)} tokens/s`,
      loss,
    }),
  },
  {
    title: 'replicas',
    script: 'fsdp.ts',
    args: ['--zero', '0'],
    show: ({ bytes, formula, process, lastLoss: loss }) => ({
      theory: mebibytes(formula),
      measured: ledger(bytes, process),
      loss,
    }),
  },
  {
    title: 'fsdp',
    script: 'fsdp.ts',
    show: ({ bytes, formula, process, digest, backend, lastLoss: loss }, _, former) => {
      const whole = former('replicas')
      // Other backends round differently in passes of whole networks and of single layers.
      const isExact = whole !== undefined && (backend === 'wasm' || backend === 'cpu')
      return {
        theory: mebibytes(formula),
        measured: ledger(bytes, process),
        ...(isExact && { isRight: digest === whole['digest'] }),
        loss,
      }
    },
  },
  {
    title: 'continue',
    script: 'continue.ts',
    show: ({ difference, loss }) => asAlone(difference, loss),
  },
  lecture('data'),
  lecture('tensor'),
  lecture('pipeline'),
  {
    title: 'mnist-fit',
    script: 'mnist-fit.ts',
    show: ({ equalWeights, loss }) => equal(equalWeights, loss),
  },
  {
    title: 'recovery',
    script: 'recovery.ts',
    ranks: 0,
    show: ({ difference, loss }) => asAlone(difference, loss),
  },
  {
    title: 'functions',
    script: 'functions.ts',
    ranks: 0,
    show: ({ dataError, pipelineError, tensorError, loss }) =>
      asAlone(Math.max(dataError, pipelineError, tensorError), loss),
  },
]
