import { fileURLToPath } from 'node:url'
import { readInteger } from '../command-line.mjs'
import { runRanks, tsrunLine } from '../programs.mjs'
import { markdownTable, printRows, significant } from '../figures.mjs'

const rank = fileURLToPath(new URL('rank.mjs', import.meta.url))

/** @typedef {import('@tsrun/training').PipelineReport & { schedule: string }} MeasuredSchedule */

/** @type {import('../command-line.mjs').Command} */
export const schedules = {
  summary:
    'step times and bubbles of the schedules, compared with the predictions of the simulator',
  options: {
    stages: {
      value: '<n>',
      default: '2',
      description: 'ranks; each has one stage, or two with interleaved',
    },
    microbatches: { value: '<n>', default: '8', description: 'parts of a batch' },
    layers: { value: '<n>', default: '8', description: 'linear layers of the network' },
    hidden: { value: '<n>', default: '1024', description: 'width of every layer' },
    batch: { value: '<n>', default: '512', description: 'examples in a batch' },
    steps: { value: '<n>', default: '9', description: 'measured steps; the schedules take turns' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const stages = readInteger('stages', values['stages'], 1, 64)
    const layers = readInteger('layers', values['layers'], stages, 1024)
    // Every stage needs a layer.
    const interleaved = layers < 2 * stages ? [] : ['interleaved']
    const setup = {
      schedules: ['naive', 'gpipe', '1f1b', 'zb-h1', ...interleaved],
      microbatches: readInteger('microbatches', values['microbatches'], 1, 1024),
      layers,
      hidden: readInteger('hidden', values['hidden'], 1, 8192),
      batch: readInteger('batch', values['batch'], 1, 65536),
      steps: readInteger('steps', values['steps'], 1, 1000),
    }
    const text = await runRanks('schedules', (output) =>
      tsrunLine(stages, rank, [output, JSON.stringify(setup)]),
    )
    const rows = summarize(JSON.parse(text), stages, setup)
    printRows(rows, values.json !== undefined, formatRows)
    return 0
  },
}

/**
 * @param {readonly MeasuredSchedule[]} measured - naive first
 * @param {number} stages
 * @param {{ microbatches: number, layers: number, hidden: number, batch: number }} setup
 */
function summarize(measured, stages, { microbatches, layers, hidden, batch }) {
  const naive = measured[0]?.stepTime ?? NaN
  return measured.map((result) => ({
    schedule: result.schedule,
    stages,
    microbatches,
    layers,
    hidden,
    batch,
    stepMs: significant(result.stepTime),
    predictedStepMs: significant(result.predictedStepTime),
    ratioToNaive: significant(result.stepTime / naive, 3),
    bubble: significant(result.bubble, 3),
    predictedBubble: significant(result.predictedBubble, 3),
  }))
}

/** @param {ReturnType<typeof summarize>} rows */
function formatRows(rows) {
  return markdownTable(
    ['schedule', 'step ms', 'predicted', 'x naive', 'bubble', 'predicted'],
    rows.map((row) => [
      row.schedule,
      row.stepMs,
      row.predictedStepMs,
      row.ratioToNaive,
      row.bubble,
      row.predictedBubble,
    ]),
  )
}
