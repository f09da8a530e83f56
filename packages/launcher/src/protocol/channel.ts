/** Name of the global symbol that holds the function with which the watching thread injects faults. */
export const INJECT = 'tsrun.inject'

/** The file descriptor of the control pipe in a rank. */
export const CONTROL_FD = 3
