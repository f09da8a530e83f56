// The lessons of the course: how each is started, and which of its figures stand beside theory.
import { formatTable } from '@tsrun/core'
import { schedule } from '@tsrun/training/planning'

/**
 * @typedef {Readonly<Record<string, any>>} Figures - of the line `result {…}` of an example, and those that
 *   a lesson adds to the table of the course
 *
 * @typedef {object} Machine
 * @property {number} cores
 * @property {number} ranks - of the lessons that take any number
 *
 * @typedef {object} Run
 * @property {string} title
 * @property {number} ranks
 * @property {number} seconds
 * @property {Figures | undefined} figures - undefined if the lesson failed
 *
 * @typedef {object} Shown
 * @property {string} [theory]
 * @property {string} measured
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

const share = (/** @type {number} */ value) => `${(100 * value).toFixed(0)} %`
const idle = (/** @type {number} */ value) => `idle ${share(value)}`
const mebibytes = (/** @type {number} */ bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`
const rounded = (/** @type {number} */ value) => Math.round(value).toLocaleString('en-US')
const differs = (/** @type {number} */ value) =>
  `differs by ${value === 0 ? 0 : value.toExponential(0)}`
const mean = (/** @type {readonly number[]} */ values) =>
  values.reduce((sum, value) => sum + value, 0) / values.length

/**
 * What is right if `difference` is 0.
 *
 * @param {number} difference
 * @param {number} [loss]
 * @returns {Shown}
 */
const asAlone = (difference, loss) => ({
  theory: differs(0),
  measured: differs(difference),
  ...(loss !== undefined && { loss }),
})

/**
 * @param {'naive' | 'gpipe' | '1f1b'} name
 * @returns {Lesson}
 */
const fromScratch = (name) => ({
  title: `scratch ${name}`,
  script: 'from-scratch/schedule.ts',
  args: [name],
  show: ({ losses, idles }, { ranks, cores }) => ({
    theory: idle(schedule(name, { stages: ranks, microbatches: 8 }).simulate({ cores }).bubble),
    measured: idle(mean(idles)),
    loss: losses.at(-1),
  }),
})

/**
 * @param {string} title
 * @param {string} script
 * @returns {Lesson}
 */
const pipelineLesson = (title, script) => ({
  title,
  script,
  show: ({ loss, ideal, shared = ideal, idle: measured, bytes }) => ({
    theory: idle(shared),
    measured: `${idle(measured)}, ${mebibytes(bytes)}`,
    loss,
  }),
})

/**
 * One that compares schedules; the second is shown beside the first, 1F1B.
 *
 * @param {string} title
 * @returns {Lesson}
 */
const comparison = (title) => ({
  title,
  script: `${title}.ts`,
  show: ({ loss, ideal, predicted, bubble, stepMs }, { ranks, cores }) => ({
    theory: idle((cores < ranks ? predicted : ideal)[1]),
    measured: `${idle(bubble[1])}, ${(stepMs[1] / stepMs[0]).toFixed(2)} x 1F1B`,
    loss,
  }),
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
    if (kind === 'data')
      return { measured: figures['isSame'] ? 'ranks equal' : 'ranks DIFFER', loss }
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
    show: ({ loss, milliseconds, bytes }) => ({
      measured: `${milliseconds.toFixed(0)} ms, ${mebibytes(bytes)}`,
      loss,
    }),
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
      measured: `${latencyUs.toFixed(1)} us, ${bandwidthGBs.toFixed(1)} GB/s`,
    }),
  },
  pipelineLesson('04 naive', '04-naive.ts'),
  pipelineLesson('05 gpipe', '05-gpipe.ts'),
  pipelineLesson('06 1f1b', '06-1f1b.ts'),
  comparison('interleaved'),
  comparison('zero-bubble'),
  {
    title: 'pipeline',
    script: 'pipeline.ts',
    show: ({ accuracy, bubble, predictedBubble }, { ranks, cores }) => ({
      theory: idle(
        cores < ranks
          ? predictedBubble
          : schedule('1f1b', { stages: ranks, microbatches: 8 }).simulate().bubble,
      ),
      measured: `${idle(bubble)}, ${(100 * accuracy).toFixed(1)} % right`,
    }),
  },
  {
    title: 'collectives',
    script: 'collectives.ts',
    show: ({ isSame }) => ({ theory: 'equal', measured: isSame ? 'equal' : 'DIFFERENT' }),
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
      const times = imagesPerSecond(figures) / imagesPerSecond(alone)
      return {
        theory: `${Math.min(ranks, cores)} x as fast`,
        measured: `${times.toFixed(2)} x as fast`,
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
    title: 'fsdp',
    script: 'fsdp.ts',
    show: ({ bytes, formula, lastLoss: loss }) => ({
      theory: mebibytes(formula),
      measured: mebibytes(bytes),
      ...(loss !== undefined && { loss }),
    }),
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
    show: ({ equalWeights, loss }) => ({
      theory: 'equal',
      measured: equalWeights ? 'equal' : 'DIFFERENT',
      loss,
    }),
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

/**
 * The figures of the last line `result {…}` that rank 0 printed; undefined if there is none.
 *
 * @param {string} output
 * @returns {Figures | undefined}
 */
export function readResult(output) {
  const line = [...output.matchAll(/^(?:\[rank 0\] )?result (\{.*\})$/gm)].at(-1)
  return line === undefined ? undefined : JSON.parse(/** @type {string} */ (line[1]))
}

/**
 * The figures of a lesson in the table of the course, which it has just written; empty if it has none.
 *
 * @param {string} text - of the file `course.json`
 * @param {Pick<Run, 'title' | 'ranks'>} run
 * @returns {Figures}
 */
export function readCourse(text, { title, ranks }) {
  /** @type {{ lessons: ({ name: string, ranks: number } & Figures)[] }} */
  const { lessons } = JSON.parse(text)
  const { ranks: _, ...figures } =
    lessons.find((lesson) => lesson.name === title && lesson.ranks === ranks) ?? {}
  return figures
}

/**
 * The row of a run: lesson, ranks, theory, measured, loss and seconds.
 *
 * @param {Run} run
 * @param {Machine} machine
 * @param {readonly Run[]} runs - those before it, too
 * @returns {string[]}
 */
export function rowOf({ title, ranks, seconds, figures }, machine, runs) {
  const lesson = lessons.find((each) => each.title === title)
  const former = (/** @type {string} */ name) => runs.find((run) => run.title === name)?.figures
  const shown =
    figures === undefined || lesson === undefined
      ? { measured: 'FAILED' }
      : lesson.show(figures, { ...machine, ranks }, former)
  const { theory = '', measured, loss } = shown
  return [title, String(ranks), theory, measured, loss?.toFixed(4) ?? '', seconds.toFixed(1)]
}

/**
 * The table of all runs, in lines of at most 80 characters.
 *
 * @param {readonly Run[]} runs
 * @param {Machine} machine
 * @returns {string[]}
 */
export function tableOf(runs, machine) {
  const headings = ['lesson', 'ranks', 'theory', 'measured', 'loss', 's']
  return formatTable([headings, ...runs.map((run) => rowOf(run, machine, runs))], 'left', 80)
}
