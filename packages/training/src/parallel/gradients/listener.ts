import type { Tensor } from '../../tfjs/tfjs.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { GradientListener, GradientMemory } from '../../model/recording.ts'
import type { GradientExchange } from './exchange.ts'
import type { Lifetime } from './lifetime.ts'

/** A replica whose gradients are exchanged. */
interface Replica {
  readonly lifetime: Lifetime
  /** Whether buckets keep their memory from step to step, so that passes may write into them. */
  readonly keepsBuckets: boolean
  /** The exchange of this step. */
  exchange(): GradientExchange
  /** Whether the pass under way is the last one of its step. */
  synchronizes(): boolean
  /** Called before each gradient. @throws when there must not be any now */
  checkPass(): void
}

/** The listener that gives gradients to a replica's exchange. An error is the end of the replica. */
export function listenerOf(replica: Replica): GradientListener {
  const guarded = <T>(use: () => T): T => {
    try {
      return use()
    } catch (error) {
      throw replica.lifetime.fail(error)
    }
  }
  const take = (parameter: Parameter, gradient: Tensor): void => {
    try {
      guarded(() => {
        replica.checkPass()
        replica.exchange().add(parameter, gradient, replica.synchronizes())
      })
    } finally {
      gradient.dispose()
    }
  }
  if (!replica.keepsBuckets) return take
  const memory: GradientMemory = {
    placeOf: (parameter) =>
      guarded(() => {
        replica.checkPass()
        return replica.exchange().placeOf(parameter)
      }),
    written: (parameter) => {
      guarded(() => {
        replica.exchange().written(parameter, replica.synchronizes())
      })
    },
  }
  return Object.assign(take, { memory })
}
