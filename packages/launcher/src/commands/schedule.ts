import { resolve } from 'node:path'
import { count, formatTable, number, readFileText } from '@tsrun/core'
import type {
  Explanation,
  Schedule,
  ScheduleName,
  SimulationOptions,
} from '@tsrun/training/planning'
import { quantity } from '../args/quantity.ts'
import { readFlag, usageError } from '../args/readers.ts'
import type { AddCommand, CommandContext } from './context.ts'

/** The planner, which is imported only when needed, so that jobs start faster. */
type Planning = typeof import('@tsrun/training/planning')

const durationFlags = {
  forward: ['forward', 'the time of a forward pass through a stage; default 1'],
  backward: ['backward', 'that of a backward pass; default 2'],
  'input-gradient': ['inputGradient', 'that of its half I; default half of --backward'],
  'weight-gradient': ['weightGradient', 'that of its half W; default half of --backward'],
  transfer: ['transfer', 'that of a message; default 0'],
  cores: ['cores', 'cores that the ranks share; default enough for all'],
} as const satisfies Record<string, readonly [keyof SimulationOptions, string]>

const counts = count({ from: 1, to: 4096 })
const duration = number.refine((time) => time >= 0 && time < Infinity, 'a number from 0')

const outputs = {
  svg: 'print a drawing as SVG',
  json: 'print everything as JSON',
  csv: 'print the lists of actions, one line per rank, as torch and --file read them',
  trace: 'print a Chrome trace, for Perfetto',
} as const

/** `tsrun schedule [name]` */
export function addSchedule(context: CommandContext): AddCommand {
  return (parser) => {
    const text = (describe: string) => ({ type: 'string', requiresArg: true, describe }) as const
    return parser.command(
      'schedule [name]',
      'draw and explain the schedule of a pipeline',
      (own) =>
        own
          .usage(
            '$0 schedule <name> --stages S --microbatches M\n$0 schedule --file FILE\n\nDraws in which order the ranks of ' +
              'a pipeline run forward passes (F), backward passes (B) or their halves (I, W), and says how long ranks ' +
              'are idle and why. Nothing is run: times are simulated.',
          )
          .positional('name', {
            type: 'string',
            describe:
              '1f1b (default), gpipe, naive, zb-h1, interleaved, looped, interleaved-zb, zb-v, dualpipe-v',
          })
          .options({
            file: text('lists of actions of your own, one line per rank, as in 0F0 0B0'),
            stages: { ...text('parts of the model'), alias: 'S', default: '4' },
            microbatches: { ...text('parts of a batch'), alias: 'M', default: '8' },
            ranks: text('ranks, where they have several stages; default: half the stages, or all'),
            'activation-memory': text(
              'what a stage holds of a micro-batch, as in 200MB; default: the peak is a number of micro-batches',
            ),
          })
          .options(
            Object.fromEntries(
              Object.entries(durationFlags).map(([flag, [, describe]]) => [flag, text(describe)]),
            ),
          )
          .options(
            Object.fromEntries(
              Object.entries(outputs).map(([flag, describe]) => [
                flag,
                {
                  type: 'boolean' as const,
                  describe,
                  conflicts: Object.keys(outputs).filter((other) => other !== flag),
                },
              ]),
            ),
          )
          .version(false),
      async (argv) => {
        const planning = await import('@tsrun/training/planning')
        const values = argv as Readonly<Record<string, string | boolean | undefined>>
        const plan = planOf(planning, values, context.cwd)
        const durations = durationsOf(values)
        const { console } = context
        if (values['svg'] === true)
          console.print('stdout', `${planning.drawSvg(plan.actions, durations)}\n`)
        else if (values['trace'] === true) {
          console.write('stdout', planning.scheduleTrace(plan.actions, durations))
        } else if (values['csv'] === true) {
          console.print('stdout', planning.formatActions(plan.actions).replaceAll(' ', ',') + '\n')
        } else if (values['json'] === true) {
          const simulation = plan.simulate(durations)
          const { name, stages, microbatches, placement } = plan
          const explanation = planning.explainSimulation(simulation)
          const facts = { name, stages, microbatches, placement, ...simulation, ...explanation }
          console.print('stdout', `${JSON.stringify(facts, null, 2)}\n`)
        } else console.print('stdout', describe(planning, plan, durations, values))
      },
    )
  }
}

function planOf(
  planning: Planning,
  values: Readonly<Record<string, string | boolean | undefined>>,
  cwd: string,
): Schedule {
  const { name, file } = values
  if (typeof file === 'string') {
    if (name !== undefined) throw usageError('a schedule has a name or a --file, not both')
    return planning.parseSchedule(readText(resolve(cwd, file), file), file)
  }
  const given = Object.fromEntries(
    ['stages', 'microbatches', 'ranks'].flatMap((flag) => {
      const value = values[flag]
      return typeof value === 'string' ? [[flag, readFlag(flag, value, counts)] as const] : []
    }),
  )
  const { stages = 4, microbatches = 8, ranks } = given
  const chosen = (name ?? '1f1b') as ScheduleName
  const isChunked = ['interleaved', 'looped', 'interleaved-zb'].includes(chosen)
  const usual = isChunked && stages % 2 === 0 ? { ranks: stages / 2 } : {}
  return planning.schedule(chosen, {
    ...{ stages, microbatches },
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

function durationsOf(
  values: Readonly<Record<string, string | boolean | undefined>>,
): SimulationOptions {
  return Object.fromEntries(
    Object.entries(durationFlags).flatMap(([flag, [option]]) => {
      const value = values[flag]
      return typeof value === 'string' ? [[option, readFlag(flag, value, duration)]] : []
    }),
  )
}

function describe(
  planning: Planning,
  plan: Schedule,
  durations: SimulationOptions,
  values: Readonly<Record<string, string | boolean | undefined>>,
): string {
  const simulation = plan.simulate(durations)
  const { makespan, bubble, ranks } = simulation
  const { idle, criticalPath } = planning.explainSimulation(simulation)
  const activation = values['activation-memory']
  const bytes =
    typeof activation === 'string'
      ? readFlag('activation-memory', activation, quantity('bytes'))
      : undefined
  const peak = (inFlight: number): string =>
    bytes === undefined ? String(inFlight) : `${(inFlight * bytes) / 1e9} GB`
  const table = ranks.map((each, rank) => [
    ...[`rank ${rank}`, round(each.busy), round(each.idle), peak(each.peakInFlight)],
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
