import type { ErrorSection } from './definition.ts'

export const storeErrors = {
  ERR_TSR_STORE_TIMEOUT: {
    category: 'infrastructure',
    message: '{operation} timed out after {milliseconds} ms; missing: {keys}',
    advice: 'A rank that should have set them has not come so far: look at its log.',
  },
  ERR_TSR_STORE_UNREACHABLE: {
    category: 'infrastructure',
    message: 'No store answers at {endpoint}: {reason}',
    advice: 'Check the address and port, and that the node that hosts the store has started.',
  },
  ERR_TSR_STORE_UNRESPONSIVE: {
    category: 'infrastructure',
    message: 'The store at {endpoint} did not answer {operation} within {milliseconds} ms',
    advice:
      'Its process is stopped or overloaded, or the network is cut; look at the launcher of node 0.',
  },
  ERR_TSR_STORE_CLOSED: {
    category: 'infrastructure',
    message: 'The connection to the store at {endpoint} is closed: {reason}',
    advice: 'The job is ending, or its launcher died; look at the launcher of node 0.',
    consequence: true,
  },
  ERR_TSR_STORE_AUTHENTICATION: {
    category: 'user',
    message: 'The store at {endpoint} and this process do not share the same token',
    advice: 'Give every node of the job the same TSRUN_TOKEN.',
  },
  ERR_TSR_STORE_PORT_TAKEN: {
    category: 'user',
    message: 'The store cannot listen at {endpoint}: another process has the port',
    advice: 'End that process, choose another port, or port 0 to take any that is free.',
  },
  ERR_TSR_STORE_LISTEN: {
    category: 'infrastructure',
    message: 'The store cannot listen at {endpoint}: {reason}',
    advice:
      'Use an address of this host and a port from 1024 up, or port 0 to take any that is free.',
  },
  ERR_TSR_STORE_LIMIT: {
    category: 'user',
    message: '{what} of {bytes} bytes exceeds the limit of {limit} bytes of the store',
    advice: 'Keep keys and values small; send bulk data with collectives.',
  },
  ERR_TSR_STORE_TYPE: {
    category: 'user',
    message: '{operation} on key {key}: its value is {actual}, expected {expected}',
    advice: 'Use one kind of operation for a key.',
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
      'Give --rdzv-endpoint a name or address of node 0 that the other hosts reach, or choose the interface with --iface.',
  },
} as const satisfies ErrorSection
