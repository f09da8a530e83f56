import type { RankEnvironment } from '@tsrun/core'
import type { StreamName } from '../../runners/open-transport.ts'

export type EngineName = 'worker' | 'inline'

/** What the choice of an engine depends on. */
export interface EngineSurroundings {
  readonly environment: Pick<RankEnvironment, 'worldSize' | 'localWorldSize'> | undefined
  readonly transport: StreamName
  /** Processors that this process may use. */
  readonly cores: number
}

/**
 * What `auto` means: `inline` where all ranks are on this host and it has no second core for each, so
 * that the thread of a worker engine would take turns with the ranks that compute; else `worker`.
 */
export function chooseEngine({ environment, transport, cores }: EngineSurroundings): EngineName {
  if (environment === undefined || transport !== 'tcp') return 'worker'
  const { worldSize, localWorldSize } = environment
  const oneHost = localWorldSize === worldSize
  return oneHost && cores < 2 * localWorldSize ? 'inline' : 'worker'
}
