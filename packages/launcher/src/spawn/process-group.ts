/** Sends a signal to every process of the group; false if there is none. */
export function signalGroup(group: number, signal: NodeJS.Signals): boolean {
  return kill(group, signal)
}

/** Whether any process (also one not yet reaped) belongs to the group. */
export function groupExists(group: number): boolean {
  return kill(group, 0)
}

function kill(group: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(-group, signal)
    return true
  } catch (error) {
    // EPERM: it exists, but belongs to somebody else now.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
