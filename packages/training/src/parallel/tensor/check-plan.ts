import { tsrError } from '@tsrun/core'
import { describe } from '../../arguments.ts'
import type { ParallelPlan } from './parallelize.ts'
import { styles } from './styles.ts'

/** @throws ERR_TSR_ARGUMENT unless it is one of names and styles */
export function checkPlan(plan: ParallelPlan | null | undefined): void {
  if (typeof plan !== 'object' || plan === null) {
    throw refusal('plan', plan, 'styles by the names of layers, as gptPlan() gives')
  }
  for (const [glob, style] of Object.entries(plan)) {
    const isStyle = typeof style === 'function' && !styles.includes(style)
    if (!isStyle)
      throw refusal(`${glob} of the plan`, style, 'a style, for example columnParallel()')
  }
}

function refusal(name: string, value: unknown, expected: string) {
  return tsrError('ERR_TSR_ARGUMENT', { name, value: describe(value), expected })
}
