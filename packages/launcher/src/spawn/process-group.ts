import { readdirSync, readFileSync } from 'node:fs'

/** Sends a signal to every process of the group; false if there is none. */
export function signalGroup(group: number, signal: NodeJS.Signals): boolean {
  return kill(group, signal)
}

/** Whether any process (also one not yet reaped) belongs to the group. */
export function groupExists(group: number): boolean {
  return kill(group, 0)
}

/**
 * The groups that have a member which is not dead: unlike `groupExists`, this leaves out orphans
 * that wait for a slow init to fetch their exit code. Undefined where there is no /proc.
 */
export function livingGroups(): Set<number> | undefined {
  const groups = new Set<number>()
  try {
    for (const name of readdirSync('/proc')) {
      const stat = /^\d+$/.test(name) ? readStat(name) : undefined
      // The name, in parentheses, may hold blanks; state, parent and group follow.
      const [state, , group] = stat?.slice(stat.lastIndexOf(')') + 2).split(' ', 3) ?? []
      if (state !== undefined && state !== 'Z' && state !== 'X') groups.add(Number(group))
    }
  } catch {
    return undefined
  }
  return groups
}

function readStat(pid: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'latin1')
  } catch {
    return undefined
  }
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
