/** The name of the global symbol of the function that injects faults into a rank. */
export const INJECT = 'tsrun.inject'

/** The file descriptor of the control pipe in a rank. */
export const CONTROL_FD = 3
