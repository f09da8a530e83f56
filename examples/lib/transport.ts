import { initProcessGroup, type InitOptions, type ProcessGroup } from '@tsrun/distributed'
import { choice, type Flag } from './flags.ts'

/** Left to the environment (TSRUN_TRANSPORT) where the flag is not given. */
const BY_ENVIRONMENT = 'environment'

const names = [BY_ENVIRONMENT, 'auto', 'shared-memory', 'tcp', 'node', 'mpi'] as const
type Name = (typeof names)[number]

/** The flag `--transport`. */
export function transport(): Flag<Name> {
  return choice(names, BY_ENVIRONMENT)
}

/** Joins the job over the transport that the flag names. */
export async function joinOver(name: Name, options: InitOptions = {}): Promise<ProcessGroup> {
  return await initProcessGroup(name === BY_ENVIRONMENT ? options : { ...options, transport: name })
}
