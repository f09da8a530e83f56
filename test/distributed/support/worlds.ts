/** How ranks may run and reach each other: everything that they promise holds in each. */
export const worlds = [
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
