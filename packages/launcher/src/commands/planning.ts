import { resolve } from 'node:path'
import { count, flag, formatTable, number, readFileText } from '@tsrun/core'
import type {
  Explanation,
  LayoutPlan,
  PlanOptions,
  Schedule,
  ScheduleName,
  Simulation,
  SimulationOptions,
} from '@tsrun/training/planning'
import type { Flags, ValuesOf } from '../args/flag.ts'
import { integerFrom, quantity, usageError, wordOf } from '../args/readers.ts'
import { declareCommand } from './context.ts'

const whole = integerFrom(1, 1e9, 'a whole number from 1')

export const plan = declareCommand({
  usage:
    '$0 plan --params 10B --memory 24GB --ranks 8\n\nComputes what each rank holds of a transformer, weights, ' +
    'gradients, optimizer state and activations, in each layout of data (dp), tensor (tp) and pipeline (pp) ' +
    'parallelism, with each stage of ZeRO and with or without recomputation; which layouts fit; and how ' +
    'long a step takes, from the simulator of schedules and the speeds that are given.',
  flags: {
    params: {
      isNeeded: true,
      reads: quantity('count'),
      description: 'parameters, as in 10B or 350M',
    },
    memory: {
      isNeeded: true,
      reads: quantity('bytes'),
      description: 'of one rank, as in 24GB or 4GiB',
    },
    ranks: { isNeeded: true, reads: whole, description: 'processes, each with its memory' },
    layers: {
      reads: whole,
      description: 'default: as in a model whose width is 128 times its layers',
    },
    width: {
      reads: whole,
      description: 'the length of a hidden vector; default: what layers and parameters give',
    },
    heads: { reads: whole, description: 'of attention; default: one per 128 of the width' },
    sequence: { reads: whole, description: 'the tokens of an example; default 2048' },
    batch: { reads: whole, description: 'the examples of a step; default four per rank' },
    optimizer: {
      reads: wordOf('adam, momentum or sgd', ['adam', 'momentum', 'sgd']),
      value: 'adam|momentum|sgd',
      fallback: 'adam',
      description: 'what the optimizer keeps for each parameter',
    },
    flops: {
      reads: quantity('count'),
      description: 'operations of a rank in a second, as reached; default 10T',
    },
    link: {
      reads: quantity('bytes/s'),
      description: 'of a rank, as in 10GB/s (default) or 100Gbit/s',
    },
    latency: { reads: number, description: 'seconds of a message; default 1e-5' },
    rows: { reads: whole, fallback: '16', description: 'of the table' },
    json: { reads: flag, description: 'print all layouts as JSON' },
  },
  run: async ({ params: parameters, rows, json, ...model }, context) => {
    const { planLayouts, planTable } = await import('@tsrun/training/planning')
    const plan = planLayouts({ parameters, ...model } as PlanOptions)
    const text =
      json === true ? `${JSON.stringify(plan, null, 2)}\n` : planText(plan, planTable(plan, rows))
    context.console.print('stdout', text)
    if (plan.best === undefined) context.exitCode = 1
  },
})

function planText({ model, batch, layouts, best }: LayoutPlan, table: string[][]): string {
  const { parameters, layers, width, heads, sequence } = model
  const found = layouts.filter(({ fits }) => fits).length
  const end =
    best === undefined
      ? `Nothing fits: the first layout takes the least, ${((layouts[0]?.memory.total ?? 0) / 1e9).toFixed(1)} GB. ` +
        'Take more ranks, shorter\nsequences, or a smaller model.'
      : `${found} of ${layouts.length} layouts fit. Of these the first is the fastest.`
  return [
    `${parameters / 1e9} B parameters: ${layers} layers of width ${width}, ${heads} heads`,
    `A step has ${batch} examples of ${sequence} tokens.`,
    'GB of the rank that holds most; re: activations are recomputed',
    '',
    ...formatTable(table, 'right', 80),
    '',
    end,
    'Not counted: the framework itself, buffers, embeddings and logits, overlap.',
    '',
  ].join('\n')
}

/** The planner, which is imported only when needed, so that jobs start faster. */
type Planning = typeof import('@tsrun/training/planning')

const counts = count({ from: 1, to: 4096 })
const duration = number.refine((time) => time >= 0 && time < Infinity, 'a number from 0')
const excludes = ['svg', 'json', 'csv', 'trace']

const flags = {
  file: { description: 'lists of actions of your own, one line per rank, as in 0F0 0B0' },
  stages: { aliases: ['S'], reads: counts, fallback: '4', description: 'parts of the model' },
  microbatches: { aliases: ['M'], reads: counts, fallback: '8', description: 'parts of a batch' },
  ranks: {
    reads: counts,
    description: 'ranks, where they have several stages; default: half the stages, or all',
  },
  'activation-memory': {
    reads: quantity('bytes'),
    description:
      'what a stage holds of a micro-batch, as in 200MB; default: the peak is a number of micro-batches',
  },
  forward: {
    reads: duration,
    description: 'the time of a forward pass through a stage; default 1',
  },
  backward: { reads: duration, description: 'that of a backward pass; default 2' },
  'input-gradient': {
    reads: duration,
    description: 'that of its half I; default half of --backward',
  },
  'weight-gradient': {
    reads: duration,
    description: 'that of its half W; default half of --backward',
  },
  transfer: { reads: duration, description: 'that of a message; default 0' },
  cores: { reads: duration, description: 'cores that the ranks share; default enough for all' },
  svg: { excludes, reads: flag, description: 'print a drawing as SVG' },
  json: { excludes, reads: flag, description: 'print everything as JSON' },
  csv: {
    excludes,
    reads: flag,
    description: 'print the lists of actions, one line per rank, as torch and --file read them',
  },
  trace: { excludes, reads: flag, description: 'print a Chrome trace, for Perfetto' },
} as const satisfies Flags

type Values = ValuesOf<typeof flags>

export const schedule = declareCommand({
  usage:
    '$0 schedule <name> --stages S --microbatches M\n$0 schedule --file FILE\n\nDraws in which order the ranks of ' +
    'a pipeline run forward passes (F), backward passes (B) or their halves (I, W), and says how long ranks ' +
    'are idle and why. Nothing is run: times are simulated.',
  argument: {
    description:
      '1f1b (default), gpipe, naive, zb-h1, interleaved, looped, interleaved-zb, zb-v, dualpipe-v',
  },
  flags,
  run: async (values, { console, cwd }, [chosen]) => {
    const planning = await import('@tsrun/training/planning')
    const plan = planOf(planning, chosen, values, cwd)
    const { svg, json, csv, trace, forward, backward, transfer, cores } = values
    const durations = {
      forward,
      backward,
      transfer,
      cores,
      inputGradient: values['input-gradient'],
      weightGradient: values['weight-gradient'],
    } as SimulationOptions
    if (svg === true) console.print('stdout', `${planning.drawSvg(plan.actions, durations)}\n`)
    else if (trace === true) {
      console.write('stdout', planning.scheduleTrace(plan.actions, durations))
    } else if (csv === true) {
      console.print('stdout', planning.formatActions(plan.actions).replaceAll(' ', ',') + '\n')
    } else {
      const simulation = plan.simulate(durations)
      const explanation = planning.explainSimulation(simulation)
      if (json === true) {
        const { name, stages, microbatches, placement } = plan
        const facts = { name, stages, microbatches, placement, ...simulation, ...explanation }
        console.print('stdout', `${JSON.stringify(facts, null, 2)}\n`)
      } else {
        const bytes = values['activation-memory']
        console.print('stdout', describe(planning, plan, simulation, explanation, bytes))
      }
    }
  },
})

function planOf(
  planning: Planning,
  name: string | undefined,
  { file, stages, microbatches, ranks }: Values,
  cwd: string,
): Schedule {
  if (file !== undefined) {
    if (name !== undefined) throw usageError('a schedule has a name or a --file, not both')
    return planning.parseSchedule(readText(resolve(cwd, file), file), file)
  }
  const chosen = (name ?? '1f1b') as ScheduleName
  const isChunked = ['interleaved', 'looped', 'interleaved-zb'].includes(chosen)
  const usual = isChunked && stages % 2 === 0 ? { ranks: stages / 2 } : {}
  return planning.schedule(chosen, {
    stages,
    microbatches,
    ...(ranks === undefined ? usual : { ranks }),
  })
}

function readText(path: string, name: string): string {
  try {
    return readFileText(path)
  } catch (error) {
    throw usageError(`--file ${name} cannot be read: ${(error as Error).message}`)
  }
}

function describe(
  planning: Planning,
  plan: Schedule,
  { makespan, bubble, ranks }: Simulation,
  { idle, criticalPath }: Explanation,
  bytes: number | undefined,
): string {
  const peak = (inFlight: number): string =>
    bytes === undefined ? String(inFlight) : `${(inFlight * bytes) / 1e9} GB`
  const table = ranks.map((each, rank) => [
    `rank ${rank}`,
    round(each.busy),
    round(each.idle),
    peak(each.peakInFlight),
    ...reasons.map((reason) => round(idleFor(idle, rank, reason))),
  ])
  const path = criticalPath.map((action) => planning.formatAction(action)).join(' ')
  return [
    `${plan.name}: ${plan.stages} stages, ${plan.microbatches} micro-batches`,
    '',
    plan.grid(),
    '',
    `The step takes ${round(makespan)}; ranks are idle in ${(100 * bubble).toFixed(1)} % of the time.`,
    '',
    ...formatTable([['', 'busy', 'idle', 'peak', ...reasons], ...table], 'right'),
    '',
    `The critical path: ${path}`,
    '',
    'The longest idle times:',
    ...longest(idle).map((each) => `  ${round(each.start)} to ${round(each.end)}: ${each.text}`),
    '',
  ].join('\n')
}

const reasons = ['fill', 'wait', 'message', 'core', 'drain'] as const

function idleFor(idle: Explanation['idle'], rank: number, reason: string): number {
  return idle
    .filter((each) => each.rank === rank && each.reason === reason)
    .reduce((sum, { start, end }) => sum + end - start, 0)
}

function longest(idle: Explanation['idle']): Explanation['idle'] {
  return idle.toSorted((a, b) => b.end - b.start - (a.end - a.start)).slice(0, 8)
}

function round(value: number): string {
  return String(Number(value.toPrecision(5)))
}
