import { readdirSync, rmSync } from 'node:fs'
import { hostname } from 'node:os'
import { dirname, join } from 'node:path'

/** Begins the name of the folder that this process builds in: host and process say whose it is. */
export function draftPrefix(): string {
  return `${ownPrefix()}${process.pid}-`
}

/** Removes what set-ups on this host have left half done: their processes are gone. */
export function removeAbandoned(home: string, inUse: string | undefined): void {
  for (const name of readdirSync(home)) {
    const folder = join(home, name)
    const pid = Number(name.startsWith(ownPrefix()) ? name.split('-').at(-2) : NaN)
    if (Number.isNaN(pid) || folder === inUse || isAlive(pid)) continue
    rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
  }
}

/** Removes the folder of the set-up before this one, unless it lies elsewhere. */
export function removeReplaced(home: string, folder: string | undefined): void {
  if (folder === undefined || dirname(folder) !== home) return
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
}

function ownPrefix(): string {
  return `build-${hostname()}-`
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
