/**
 * What runs in a rank before the script (`node --import`). Worker threads and forked children inherit
 * `--import`. Nothing happens in them: they are not a main thread, or do not have the variable.
 */
import { isMainThread } from 'node:worker_threads'

if (isMainThread && process.env['TSRUN_CONTROL_FD'] !== undefined) {
  const { prepareRank } = await import('./prepare.ts')
  prepareRank(process.env)
}
