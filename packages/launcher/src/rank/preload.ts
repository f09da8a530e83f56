/**
 * What runs in a rank before the script (`node --import`). Worker threads and forked children
 * inherit `--import`; they find no variable, or are no main thread, and nothing happens.
 */
import { isMainThread } from 'node:worker_threads'

if (isMainThread && process.env['TSRUN_CONTROL_FD'] !== undefined) {
  const { prepareRank } = await import('./prepare.ts')
  prepareRank(process.env)
}
