import { availableParallelism } from 'node:os'
import type { InitOptions, ProcessGroup } from '@tsrun/distributed'
import { loadBackend, type Backend } from '@tsrun/training'
import { given, join, type JobFlags } from './flags.ts'
import { wrap } from './output.ts'

/** `computed by wasm on CPU, 1 thread` */
export function describeBackend({ name, device, threads, blas }: Backend): string {
  const cores = threads === 1 ? '1 thread' : `${threads} threads`
  const products = blas === undefined ? '' : `, matrix products by ${blas}`
  return wrap(`computed by ${name} on ${device}, ${cores}${products}`)
}

/** Loads the backend that `--device` names, otherwise TSRUN_BACKEND. Rank 0 prints which one computes. */
export async function loadShown(
  rank: number,
  device: JobFlags['device'] = 'environment',
): Promise<void> {
  const backend = await loadBackend(given({ device }).device)
  if (rank === 0) console.log(describeBackend(backend))
}

/** Joins the job and loads the backend as the flags say. */
export async function startJob(flags: JobFlags, options: InitOptions = {}): Promise<ProcessGroup> {
  const group = await join(flags, options)
  await loadShown(group.rank, flags.device)
  if (group.rank === 0 && flags.overlap === 'on') warnOfCores(group.size)
  return group
}

/** Says so if there is no core on which messages could move while a rank computes. */
function warnOfCores(ranks: number): void {
  const cores = availableParallelism()
  if (cores >= 2 * ranks) return
  const text = `${ranks} ranks have ${cores} cores. With fewer than two cores for each rank, messages that `
  console.log(
    wrap(`${text}move while a rank computes slow it down: --overlap on cannot help here.`),
  )
}
