export interface World {
  readonly name: string
  readonly env: Readonly<Record<string, string>>
}

/** How ranks may run and reach each other: everything that they promise holds in each. */
export const worlds: readonly World[] = [
  {
    name: 'shared memory, worker',
    env: { TSRUN_TRANSPORT: 'shared-memory', TSRUN_ENGINE: 'worker' },
  },
  {
    name: 'shared memory, inline',
    env: { TSRUN_TRANSPORT: 'shared-memory', TSRUN_ENGINE: 'inline' },
  },
  { name: 'tcp, worker', env: { TSRUN_TRANSPORT: 'tcp', TSRUN_ENGINE: 'worker' } },
  { name: 'tcp, inline', env: { TSRUN_TRANSPORT: 'tcp', TSRUN_ENGINE: 'inline' } },
  { name: 'node', env: { TSRUN_TRANSPORT: 'node' } },
]

/** The one that most jobs on one host have. */
export const usualWorlds = worlds.slice(0, 1)

/** All others: what holds in each of these as well is checked by `npm run test:slow`. */
export const otherWorlds = worlds.slice(1)
