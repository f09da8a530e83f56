import type { Parameter } from '../../model/parameter.ts'

/** The parameters whose gradients go through replicas: others in their places would have none. */
const replicated = new WeakSet<Parameter>()

export function isReplicated(parameter: Parameter): boolean {
  return replicated.has(parameter)
}

export function markReplicated(parameters: readonly Parameter[]): void {
  for (const parameter of parameters) replicated.add(parameter)
}

/** When their replica is disposed. */
export function unmarkReplicated(parameters: readonly Parameter[]): void {
  for (const parameter of parameters) replicated.delete(parameter)
}
