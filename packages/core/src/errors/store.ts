import type { ErrorSection } from './definition.ts'

export const storeErrors = {
  ERR_TSR_STORE_TIMEOUT: {
    category: 'infrastructure',
    message: '{operation} timed out after {milliseconds} ms; missing: {keys}',
    advice:
      'Look at the log of the rank that should have set the missing keys: it has not done so yet.',
  },
  ERR_TSR_STORE_UNREACHABLE: {
    category: 'infrastructure',
    message: 'No store answers at {endpoint}: {reason}',
    advice: 'Check the address and the port, and that the node that hosts the store has started.',
  },
  ERR_TSR_STORE_UNRESPONSIVE: {
    category: 'infrastructure',
    message: 'The store at {endpoint} did not answer {operation} within {milliseconds} ms',
    advice:
      'Look at the launcher of node 0: its process is stopped or overloaded, or the network is cut.',
  },
  ERR_TSR_STORE_CLOSED: {
    category: 'infrastructure',
    message: 'The connection to the store at {endpoint} is closed: {reason}',
    advice: 'Look at the launcher of node 0, unless the job is ending: the launcher may have died.',
    consequence: true,
  },
  ERR_TSR_STORE_AUTHENTICATION: {
    category: 'user',
    message: 'The store at {endpoint} and this process have different tokens',
    advice: 'Give every node of the job the same TSRUN_TOKEN.',
  },
  ERR_TSR_STORE_TLS: {
    category: 'user',
    message: 'The connection to the store at {endpoint} cannot be encrypted: {reason}',
    advice:
      'Give all hosts certificates that the authority of --tls-ca has signed. Or give no certificates: the token of the job then encrypts the connections.',
  },
  ERR_TSR_STORE_PROTECTION: {
    category: 'user',
    message: 'The store at {endpoint} {theirs}, and this process {ours}',
    advice: 'Start tsrun with --tls on all hosts, or on none.',
  },
  ERR_TSR_STORE_PORT_TAKEN: {
    category: 'user',
    message: 'The store cannot listen at {endpoint}: another process is using the port',
    advice: 'End that process, or choose another port; port 0 takes any free one.',
  },
  ERR_TSR_STORE_LISTEN: {
    category: 'infrastructure',
    message: 'The store cannot listen at {endpoint}: {reason}',
    advice: 'Use an address of this host and a port of 1024 or above; port 0 takes any free one.',
  },
  ERR_TSR_STORE_LIMIT: {
    category: 'user',
    message: "{what} of {bytes} bytes exceeds the store's limit of {limit} bytes",
    advice: 'Keep keys and values small, and send bulk data with collectives.',
  },
  ERR_TSR_STORE_TYPE: {
    category: 'user',
    message: '{operation} on key {key}: its value is {actual}, expected {expected}',
    advice: 'Use each key for one kind of operation only.',
  },
  ERR_TSR_INTERFACE: {
    category: 'user',
    message: 'This host has no network interface or address {name}; it has {known}',
    advice: 'Correct --iface (TSRUN_IFACE).',
  },
  ERR_TSR_LOOPBACK: {
    category: 'user',
    message: '{who} would be reached at {address}, a loopback address, but the job has other hosts',
    advice:
      'Give --rdzv-endpoint a name or address of node 0 that the other hosts can reach, or choose the network interface with --iface.',
  },
} as const satisfies ErrorSection
