import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, existsSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { makeOwnFolder, messageOf, openOwnFile, readFileText, tsrError } from '@tsrun/core'
import { usageError } from '../args/readers.ts'
import type { JobContext } from './job.ts'

/** The environment variable that marks the launcher in the background. */
const DETACHED = 'TSRUN_DETACHED'

/** The file in the run's folder that holds tsrun's own messages about a detached job. */
const LAUNCHER_LOG = 'launcher.log'

/** Whether this launcher runs in the background. Removes the variable, so that ranks do not get it. */
export function takeDetached(env: NodeJS.ProcessEnv): boolean {
  const isDetached = env[DETACHED] !== undefined
  Reflect.deleteProperty(env, DETACHED)
  return isDetached
}

/** Tells the waiting launcher that the run has begun. */
export function announceDetached(runId: string): void {
  process.send?.(runId)
}

/** Starts this command line again in the background, and waits until its job has begun or failed. */
export async function detach(
  logs: string,
  env: NodeJS.ProcessEnv,
  { console, interrupts }: Pick<JobContext, 'console' | 'interrupts'>,
): Promise<number> {
  const file = join(logs, `launcher-${process.pid}.log`)
  const fd = openLog(logs, file)
  const child = spawn(process.execPath, [...process.execArgv, ...process.argv.slice(1)], {
    detached: true,
    env: { ...env, [DETACHED]: '1' },
    stdio: ['ignore', fd, fd, 'ipc'],
  })
  closeSync(fd)
  interrupts.stop.addEventListener('abort', () => child.kill('SIGTERM'))
  const [runId] = (await Promise.race([once(child, 'message'), once(child, 'exit')])) as unknown[]
  console.print('stderr', readFileText(file))
  if (typeof runId !== 'string') {
    rmSync(file)
    return child.exitCode ?? 1
  }
  makeOwnFolder(join(logs, runId))
  renameSync(file, join(logs, runId, LAUNCHER_LOG))
  const lines = [
    `run ${runId} is in the background`,
    `  output  tsrun logs ${runId} --follow`,
    `  state   tsrun ps ${runId}`,
    `  stop    kill ${child.pid!}`,
  ]
  console.print('stdout', `${lines.join('\n')}\n`)
  return 0
}

function openLog(directory: string, file: string): number {
  try {
    makeOwnFolder(directory)
    return openOwnFile(file)
  } catch (cause) {
    const reason = messageOf(cause)
    throw tsrError('ERR_TSR_LOG_DIRECTORY', { directory, reason }, { cause })
  }
}

/** Returns tsrun's own messages about a detached job; empty for other jobs. */
export function readLauncherLog(run: string): string {
  const path = join(run, LAUNCHER_LOG)
  if (!existsSync(path)) return ''
  try {
    return readFileText(path)
  } catch (error) {
    throw usageError(messageOf(error), error)
  }
}
