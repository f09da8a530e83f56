/**
 * What runs in a rank before the script (`node --import`). Worker threads and forked children inherit
 * `--import`. Nothing happens in them: they are not a main thread, or do not have the variable.
 */
import module from 'node:module'
import { isMainThread } from 'node:worker_threads'

if (isMainThread && process.env['TSRUN_CONTROL_FD'] !== undefined) {
  // Node 22.1 and later: the compiled code of modules is kept for the next start.
  // eslint-disable-next-line n/no-unsupported-features/node-builtins -- only where it is there
  const { enableCompileCache } = module as { enableCompileCache?: () => unknown }
  enableCompileCache?.()
  const { prepareRank } = await import('./prepare.ts')
  prepareRank(process.env)
}
