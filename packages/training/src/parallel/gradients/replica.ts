import { argumentError, shown, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { timeWait } from '@tsrun/distributed/record'
import { currentBackend } from '../../backend/current.ts'
import type { GradientListener } from '../../model/recording.ts'
import { freeAfterRun } from '../group-buffers.ts'
import type { Averaged, Averages, Replicated, OwnTotals, StepTotals } from './averaging.ts'
import { gradientListener, type GradientExchange } from './exchange.ts'
import type { JoinedLoop } from './joined.ts'
import type { GradientOptions, ModelParameters } from './options.ts'
import { bufferSharing, markReplicated } from './replicas.ts'

/** A rank's replica of a model. Gradients are averaged over all replicas. */
export abstract class Replica<M extends Replicated> {
  readonly module: M
  readonly axes: readonly ProcessGroup[]
  readonly replicas: readonly ProcessGroup[]
  /**
   * The gradient listener for `backward`. It copies each gradient into a bucket, and sends a bucket as soon as
   * it is full. With `dataParallel` and stage 1 of `fullyShard`, backward passes write directly into the
   * buckets. Gradients of passes without examples (`Pass.isEmpty`) are dropped.
   *
   * @throws ERR_TSR_GRADIENT_TWICE; ERR_TSR_ARGUMENT when a gradient does not have the shape of its
   *   parameter, and while `gradients` is pending; ERR_TSR_SYNC_READ on webgpu; ERR_TSR_REPLICA_ENDED
   *   after a failed step or `dispose`
   */
  readonly onGradient: GradientListener
  /** Whether the next backward pass is the last one of this step; default true. If false, it sends nothing. */
  synchronizes = true
  readonly shard: ProcessGroup | undefined = undefined
  protected readonly replicated: ModelParameters
  protected readonly options: GradientOptions
  protected readonly lifetime: Lifetime
  /** The loop of `DataParallel.join`, while it runs. */
  protected joined: JoinedLoop | undefined
  readonly #share: ReturnType<typeof bufferSharing>
  /** Sums the totals of a step; undefined if the options need none. */
  readonly #sum: ReturnType<typeof totalsSum> | undefined
  /** The factor that `scaleFor` returns; undefined until a step has counted labels. */
  #scale: number | undefined
  /** The number of steps that failed on this rank before any gradient was sent. */
  #abandoned = 0

  /** @param keepsBuckets - whether buckets keep their memory between steps; see `gradientListener` */
  constructor(
    module: M,
    axes: readonly ProcessGroup[],
    parameters: ModelParameters,
    options: GradientOptions,
    replicas: readonly ProcessGroup[],
    keepsBuckets: boolean,
  ) {
    this.module = module
    this.axes = axes
    this.replicas = replicas
    this.replicated = parameters
    this.options = options
    // Products are exact in all steps, because none were computed before this call.
    if (options.deterministic) currentBackend().makeExact?.()
    this.lifetime = trackLifetime(axes[0]!)
    this.#share = bufferSharing(parameters.buffers, axes)
    const marks = options.unused === 'error' ? 0 : parameters.trained.length
    const isSummed = options.reduction === 'token' || marks > 0
    this.#sum = isSummed ? totalsSum(axes, marks) : undefined
    const open = () => {
      this.lifetime.checkAwaited('a backward pass')
      if (this.synchronizes) this.joined?.announce(true)
      return { exchange: this.exchange, isLast: this.synchronizes }
    }
    this.onGradient = gradientListener(open, this.lifetime.fail, keepsBuckets)
  }

  get reduction(): 'mean' | 'token' {
    return this.options.reduction
  }

  protected abstract readonly exchange: GradientExchange

  /** Ends the step. @returns the averages times `factor`, except for the names in `unused` */
  protected abstract take(factor: number, unused: ReadonlySet<string>): Promise<Averages> | Averages

  protected abstract close(): void

  async scaleFor(count: number): Promise<number> {
    // Scale the first step too: gradients of a loss summed over all labels may overflow float16. Use no
    // collective in a loop of `join`, because ranks that have finished their loop do not call this method.
    const isFirst = this.#scale === undefined && this.joined === undefined
    if (isFirst && this.options.wire === 'float16') {
      await this.lifetime.step(async () => {
        const total = Float64Array.of(count)
        for (const axis of this.axes) await axis.allReduce(total, { label: 'first scale' })
        this.#keepScale(factorOf(this.axes, total[0]!))
      })
    }
    return this.#scale ?? 1
  }

  async average(own: OwnTotals, scale: number): Promise<Averaged> {
    return await this.lifetime.alone('gradients()', async () => {
      const used = this.exchange.used()
      if (this.options.unused === 'error' && !used.every(Boolean)) {
        const { rank, ranks } = this.axes[0]!
        const unused = this.exchange.names().filter((_, i) => !used[i])
        const facts = { rank: ranks[rank]!, parameters: unused.join(', ') }
        throw tsrError('ERR_TSR_UNUSED_PARAMETERS', facts)
      }
      return await this.finishStep(own, scale)
    })
  }

  abandon(error: unknown): void {
    if (this.exchange.abandon()) this.#abandoned++
    else this.lifetime.fail(error)
  }

  async gather(): Promise<void> {
    // Do nothing: parameters are whole, unless a subclass shards them.
  }

  release(): void {
    // Do nothing: parameters are whole, unless a subclass shards them.
  }

  /** Frees the buckets. The model stays usable; a sharded model keeps only its unsharded parameters. */
  dispose(): void {
    if (!this.lifetime.dispose()) return
    this.module.averageBy?.(undefined)
    this.close()
    this.#sum?.dispose()
    for (const group of this.replicas) group.destroy().catch(() => undefined)
    markReplicated(this.replicated.all, false)
  }

  /** Waits for the averaged gradients of a loss that was not multiplied by the factor of `scaleFor`. */
  protected async takeGradients(tokens: number | undefined): Promise<Averages> {
    const isRight =
      this.reduction === 'token' ? Number.isFinite(tokens) && tokens! >= 0 : tokens === undefined
    if (!isRight) {
      throw argumentError(
        'tokens',
        shown(tokens),
        "a number >= 0 with reduction: 'token', and only there",
      )
    }
    const count = tokens ?? 0
    const { gradients } = await this.average({ loss: 0, count, examples: count }, 1)
    return gradients
  }

  protected async finishStep(own: OwnTotals, scale: number): Promise<Averaged> {
    const { exchange, axes, joined } = this
    joined?.announce(true)
    exchange.startUntil()
    await exchange.beforeTotals()
    const ranks = (await joined?.next()) ?? countRanks(axes)
    const totals = await this.#sum?.sum(exchange, own, this.#abandoned)
    await exchange.finished()
    // In a loop of `join` the first rank may have finished, so its buffers may be outdated. At the
    // end `join` broadcasts the buffers of the rank that made the most steps.
    if (joined === undefined) await this.#share()
    const factor = factorOf(axes, this.reduction === 'token' ? totals!.count : ranks)
    const gradients = await this.take(factor / scale, totals?.unused ?? new Set())
    this.#keepScale(factor)
    return { gradients, totals }
  }

  /**
   * Keeps the power of two nearest to a factor, because multiplying by a power of two is exact. If the factor
   * is itself a power of two, as with most batch sizes, no extra pass scales the gradients.
   */
  #keepScale(factor: number): void {
    if (factor > 0) this.#scale = 2 ** Math.round(Math.log2(factor))
  }
}

/** The calls that must be awaited before the next backward pass. */
type Call = 'gradients()' | 'step()'

type Lifetime = ReturnType<typeof trackLifetime>

/** Tracks whether a replica is usable: until `dispose`, or a failed step, after which ranks may differ. */
function trackLifetime({ rank, ranks }: ProcessGroup) {
  /** The reason why the replica is unusable; undefined while it is usable. */
  let end: string | undefined
  let running: Call | undefined

  /** @throws ERR_TSR_REPLICA_ENDED */
  const check = () => {
    if (end === undefined) return
    // Report the rank in the world, not in the group: users compare errors of several groups.
    throw tsrError('ERR_TSR_REPLICA_ENDED', { rank: ranks[rank]!, reason: end })
  }
  /**
   * Checks that no conflicting call is in progress.
   *
   * @throws ERR_TSR_ARGUMENT while one of `calls` is in progress; ERR_TSR_REPLICA_ENDED
   */
  const checkAwaited = (what: string, calls: readonly Call[] = ['gradients()', 'step()']) => {
    check()
    const conflict = calls.find((call) => call === running)
    if (conflict === undefined) return
    throw argumentError(what, `made before ${conflict} has ended`, `\`await\` before ${conflict}`)
  }
  /** Makes the replica unusable after a failed step. @returns the argument `error` */
  const fail = (error: unknown) => {
    const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown }
    end ??= `a step has failed (${String(code ?? message)})`
    return error
  }
  /** Runs a part of a step. If it fails, the replica becomes unusable. */
  const step = async <T>(part: () => Promise<T>): Promise<T> => {
    check()
    try {
      return await part()
    } catch (error) {
      throw fail(error)
    }
  }
  return {
    checkAwaited,
    fail,
    step,

    /** Runs a part of a step that must be awaited before other calls; see `checkAwaited`. */
    async alone<T>(call: Call, part: () => Promise<T>): Promise<T> {
      checkAwaited(call)
      running = call
      try {
        return await step(part)
      } finally {
        running = undefined
      }
    },

    get isDisposed() {
      return end === DISPOSED
    },

    /** Makes the replica unusable. @returns whether this was the first call */
    dispose() {
      const isFirst = end !== DISPOSED
      end = DISPOSED
      return isFirst
    },
  }
}

const DISPOSED = 'it was disposed'

export function countRanks(axes: readonly ProcessGroup[]): number {
  return axes.reduce((product, { size }) => product * size, 1)
}

/**
 * Sums the totals of each step over all ranks.
 *
 * @param marks - the number of parameters whose use by any rank is also tracked
 */
function totalsSum(axes: readonly ProcessGroup[], marks: number) {
  const group = axes[0]!
  /** The totals, then one flag per parameter: whether it was used. */
  const totals = new Float64Array(MARKS + marks)
  const label = 'loss, counts, used parameters'
  const sums = axes.map((axis) => axis.allReduceInit(totals, { label }))
  return {
    /**
     * Sums the totals of this step over all ranks.
     *
     * @param abandoned - the number of steps that failed on this rank
     * @throws ERR_TSR_REPLICA_ENDED on all ranks when a step failed on some ranks only, because later
     *   steps would not match between ranks
     */
    async sum(
      { used, names }: GradientExchange,
      own: OwnTotals,
      abandoned: number,
    ): Promise<StepTotals> {
      const [asMean, asSum] = [Number(own.found === 'mean'), Number(own.found === 'sum')]
      totals.set([own.loss, own.count, own.examples, abandoned, asMean, asSum])
      if (marks > 0) totals.set(used().map(Number), MARKS)
      await timeWait(group.spans, { name: 'totals' }, async () => {
        for (const sum of sums) {
          sum.start()
          await sum.done()
        }
      })
      const [loss = 0, count = 0, examples = 0, failed = 0, onMean = 0, onSum = 0] = totals
      if (failed !== abandoned * countRanks(axes)) {
        const rank = group.ranks[group.rank]!
        const reason = 'a step has failed on some ranks only'
        throw tsrError('ERR_TSR_REPLICA_ENDED', { rank, reason })
      }
      if (onMean > 0 && onSum > 0) {
        throw argumentError(
          'loss',
          `a mean on ${onMean} ranks, and a sum on ${onSum}`,
          "loss.reduction = 'mean' or 'sum', which says what it is",
        )
      }
      const found = onMean > 0 ? 'mean' : onSum > 0 ? 'sum' : undefined
      const missing = names().filter((_, i) => totals[MARKS + i] === 0)
      return { loss, count, examples, found, unused: new Set(missing) }
    },

    dispose() {
      for (const sum of sums) freeAfterRun(sum)
    },
  }
}

/** The number of totals before the flags of parameters. */
const MARKS = 6

/** Returns the factor that converts a mean over ranks into a mean over `count` examples or labels. */
function factorOf(axes: readonly ProcessGroup[], count: number): number {
  // Without examples all gradients are zero.
  return count === 0 ? 0 : countRanks(axes) / count
}
