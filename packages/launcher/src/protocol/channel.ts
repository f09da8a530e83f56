/** The global symbol under which the watching thread finds what injects a fault into the process. */
export const INJECT = 'tsrun.inject'

/** The file descriptor of the control pipe in a rank. */
export const CONTROL_FD = 3
