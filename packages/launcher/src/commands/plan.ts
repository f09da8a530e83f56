import { formatTable, number } from '@tsrun/core'
import type { LayoutPlan, PlanOptions } from '@tsrun/training/planning'
import { quantity } from '../args/quantity.ts'
import { integerFrom, readFlag } from '../args/readers.ts'
import type { AddCommand, CommandContext } from './context.ts'

const counts = {
  ranks: 'processes, each with its memory',
  layers: 'default: as in a model whose width is 128 times its layers',
  width: 'the length of a hidden vector; default: what layers and parameters give',
  heads: 'of attention; default: one per 128 of the width',
  sequence: 'the tokens of an example; default 2048',
  batch: 'the examples of a step; default four per rank',
} as const

const positive = integerFrom(1, 1e9, 'a whole number from 1')

/** `tsrun plan` */
export function addPlan(context: CommandContext): AddCommand {
  return (parser) => {
    const text = (describe: string) => ({ type: 'string', requiresArg: true, describe }) as const
    return parser.command(
      'plan',
      'find the layouts in which a model fits into memory',
      (own) =>
        own
          .usage(
            '$0 plan --params 10B --memory 24GB --ranks 8\n\nComputes what each rank holds of a transformer, weights, ' +
              'gradients, optimizer state and activations, in each layout of data (dp), tensor (tp) and pipeline (pp) ' +
              'parallelism, with each stage of ZeRO and with or without recomputation; which layouts fit; and how ' +
              'long a step takes, from the simulator of schedules and the speeds that are given.',
          )
          .options({
            params: { ...text('parameters, as in 10B or 350M'), demandOption: true },
            memory: { ...text('of one rank, as in 24GB or 4GiB'), demandOption: true },
            ...Object.fromEntries(
              Object.entries(counts).map(([flag, describe]) => [flag, text(describe)]),
            ),
            dtype: {
              choices: ['float32', 'bfloat16', 'float16'] as const,
              default: 'float32' as const,
              describe: 'of weights, gradients and activations; tsrun trains in float32',
            },
            optimizer: {
              choices: ['adam', 'momentum', 'sgd'] as const,
              default: 'adam' as const,
              describe: 'what the optimizer keeps for each parameter',
            },
            flops: text('operations of a rank in a second, as reached; default 10T'),
            link: text('of a rank, as in 10GB/s (default) or 100Gbit/s'),
            latency: text('seconds of a message; default 1e-5'),
            rows: { ...text('of the table'), default: '16' },
            json: { type: 'boolean', describe: 'print all layouts as JSON' },
          })
          .demandOption('ranks')
          .version(false),
      async (argv) => {
        const values = argv as Readonly<Record<string, string | undefined>>
        const { planLayouts, planTable } = await import('@tsrun/training/planning')
        const plan = planLayouts(optionsOf(values, argv.dtype, argv.optimizer))
        const rows = readFlag('rows', argv.rows, positive)
        context.console.print(
          'stdout',
          argv.json === true
            ? `${JSON.stringify(plan, null, 2)}\n`
            : planText(plan, planTable(plan, rows)),
        )
        if (plan.best === undefined) context.exitCode = 1
      },
    )
  }
}

function optionsOf(
  values: Readonly<Record<string, string | undefined>>,
  dtype: NonNullable<PlanOptions['dtype']>,
  optimizer: NonNullable<PlanOptions['optimizer']>,
): PlanOptions {
  const { flops, link, latency } = values
  const given = Object.keys(counts).flatMap((flag) => {
    const value = values[flag]
    return value === undefined ? [] : [[flag, readFlag(flag, value, positive)] as const]
  })
  return {
    ...(Object.fromEntries(given) as { ranks: number }),
    ...{ dtype, optimizer },
    parameters: readFlag('params', values['params']!, quantity()),
    memory: readFlag('memory', values['memory']!, quantity('bytes')),
    ...(flops === undefined ? {} : { flops: readFlag('flops', flops, quantity()) }),
    ...(link === undefined ? {} : { link: readFlag('link', link, quantity('bytes/s')) }),
    ...(latency === undefined ? {} : { latency: readFlag('latency', latency, number) }),
  }
}

function planText({ model, batch, layouts, best }: LayoutPlan, table: string[][]): string {
  const { parameters, layers, width, heads, sequence } = model
  const found = layouts.filter(({ fits }) => fits).length
  const end =
    best === undefined
      ? `Nothing fits: the first layout takes the least, ${((layouts[0]?.memory.total ?? 0) / 1e9).toFixed(1)} GB. ` +
        'Take more ranks, 16-bit\nnumbers, shorter sequences, or a smaller model.'
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
