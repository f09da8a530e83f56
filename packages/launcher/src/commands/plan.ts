import { flag, formatTable, number } from '@tsrun/core'
import type { LayoutPlan, PlanOptions } from '@tsrun/training/planning'
import { quantity } from '../args/quantity.ts'
import { integerFrom } from '../args/readers.ts'
import { declareCommand } from './context.ts'

const whole = integerFrom(1, 1e9, 'a whole number from 1')

/** `tsrun plan` */
export const command = declareCommand({
  usage:
    '$0 plan --params 10B --memory 24GB --ranks 8\n\nComputes what each rank holds of a transformer, weights, ' +
    'gradients, optimizer state and activations, in each layout of data (dp), tensor (tp) and pipeline (pp) ' +
    'parallelism, with each stage of ZeRO and with or without recomputation; which layouts fit; and how ' +
    'long a step takes, from the simulator of schedules and the speeds that are given.',
  flags: {
    params: {
      isNeeded: true,
      reads: quantity(),
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
    dtype: {
      choices: ['float32', 'bfloat16', 'float16'],
      fallback: 'float32',
      description: 'of weights, gradients and activations; tsrun trains in float32',
    },
    optimizer: {
      choices: ['adam', 'momentum', 'sgd'],
      fallback: 'adam',
      description: 'what the optimizer keeps for each parameter',
    },
    flops: {
      reads: quantity(),
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
