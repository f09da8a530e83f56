import { infrastructureError, userError, type ErrorSection } from './definition.ts'

export const storeErrors = {
  ERR_TSR_STORE_TIMEOUT: infrastructureError(
    '{operation} timed out after {milliseconds} ms; missing: {keys}',
    'Look at the log of the rank that should have set the missing keys: it has not done so yet.',
  ),
  ERR_TSR_STORE_UNREACHABLE: infrastructureError(
    'No store answers at {endpoint}: {reason}',
    'Check the address and the port, and that the node that hosts the store has started.',
  ),
  ERR_TSR_STORE_UNRESPONSIVE: infrastructureError(
    'The store at {endpoint} did not answer {operation} within {milliseconds} ms',
    'Look at the launcher of node 0: its process is stopped or overloaded, or the network is cut.',
  ),
  ERR_TSR_STORE_CLOSED: {
    category: 'infrastructure',
    message: 'The connection to the store at {endpoint} is closed: {reason}',
    advice: 'Look at the launcher of node 0, unless the job is ending: the launcher may have died.',
    consequence: true,
  },
  ERR_TSR_STORE_AUTHENTICATION: userError(
    'The store at {endpoint} and this process have different tokens',
    'Give every node of the job the same TSRUN_TOKEN.',
  ),
  ERR_TSR_STORE_TLS: userError(
    'The connection to the store at {endpoint} cannot be encrypted: {reason}',
    'Give all hosts certificates that the authority of --tls-ca has signed. Or give no certificates: the token of the job then encrypts the connections.',
  ),
  ERR_TSR_STORE_PROTECTION: userError(
    'The store at {endpoint} {theirs}, and this process {ours}',
    'Start tsrun with --tls on all hosts, or on none.',
  ),
  ERR_TSR_STORE_PORT_TAKEN: userError(
    'The store cannot listen at {endpoint}: another process is using the port',
    'End that process, or choose another port; port 0 takes any free one.',
  ),
  ERR_TSR_STORE_LISTEN: infrastructureError(
    'The store cannot listen at {endpoint}: {reason}',
    'Use an address of this host and a port of 1024 or above; port 0 takes any free one.',
  ),
  ERR_TSR_STORE_LIMIT: userError(
    "{what} of {bytes} bytes exceeds the store's limit of {limit} bytes",
    'Keep keys and values small, and send bulk data with collectives.',
  ),
  ERR_TSR_STORE_TYPE: userError(
    '{operation} on key {key}: its value is {actual}, expected {expected}',
    'Use each key for one kind of operation only.',
  ),
  ERR_TSR_INTERFACE: userError(
    'This host has no network interface or address {name}; it has {known}',
    'Correct --iface (TSRUN_IFACE).',
  ),
  ERR_TSR_LOOPBACK: userError(
    '{who} would be reached at {address}, a loopback address, but the job has other hosts',
    'Give --rdzv-endpoint a name or address of node 0 that the other hosts can reach, or choose the network interface with --iface.',
  ),
} as const satisfies ErrorSection
