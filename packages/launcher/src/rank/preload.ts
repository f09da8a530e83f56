/**
 * Prepares a rank before its script (`node --import`). Worker threads and forked children inherit
 * `--import`, but nothing happens there: they are not the main thread, or lack TSRUN_CONTROL_FD.
 */
import module from 'node:module'
import { isMainThread } from 'node:worker_threads'

if (isMainThread && process.env['TSRUN_CONTROL_FD'] !== undefined) {
  // Node 22.1 and later cache the compiled code of modules for the next start.
  // eslint-disable-next-line n/no-unsupported-features/node-builtins -- called only if available
  const { enableCompileCache } = module as { enableCompileCache?: () => unknown }
  enableCompileCache?.()
  const { prepareRank } = await import('./prepare.ts')
  prepareRank()
}
