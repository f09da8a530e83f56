import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads'
import { count, filled, readVariable, type Environment, type Schema } from '../schema.ts'

/**
 * The environment variables through which the launcher configures a rank. Names that begin with
 * `TSRUN_` are tsrun's; the others are torchrun's.
 */
export interface RankEnvironment {
  /** Rank in the job, 0 .. worldSize - 1 (RANK). */
  readonly rank: number
  /** Number of ranks in the job (WORLD_SIZE). */
  readonly worldSize: number
  /** Rank on this host (LOCAL_RANK, or TSRUN_LOCAL_RANK with `--virtual-local-rank`). */
  readonly localRank: number
  /** Number of ranks on this host (LOCAL_WORLD_SIZE). */
  readonly localWorldSize: number
  /** Index of this host (NODE_RANK, GROUP_RANK). */
  readonly nodeRank: number
  /** Number of hosts (TSRUN_NNODES). */
  readonly nnodes: number
  /** Address of the store (MASTER_ADDR). */
  readonly masterAddr: string
  /** Port of the store (TSRUN_STORE_PORT, else MASTER_PORT). */
  readonly masterPort: number
  /**
   * A port at `masterAddr` that was free when the job started (MASTER_PORT, if TSRUN_STORE_PORT is
   * set). Rank 0 of a `--no-python` program can listen there, as PyTorch's `env://` does.
   */
  readonly freePort?: number | undefined
  /** Name of the job in logs and store keys (TSRUN_RUN_ID). */
  readonly runId: string
  /** Hexadecimal secret that authenticates every connection of the job (TSRUN_TOKEN). */
  readonly token: string
  /** Number of restarts so far (TSRUN_RESTART_COUNT). Messages of earlier attempts are ignored. */
  readonly restartCount: number
}

/**
 * Reads the rank environment. Returns undefined if no launcher has set it; the process is then a
 * world of one.
 *
 * Removes the token from `process.env`, like `takeToken`.
 *
 * @throws ERR_TSR_ENVIRONMENT when a variable is missing or has an invalid value
 */
export function readRankEnvironment(env: Environment = process.env): RankEnvironment | undefined {
  if (env['RANK'] === undefined && env['WORLD_SIZE'] === undefined) return undefined
  const read = <T>(variable: string, of: Schema<T>): T => readVariable(variable, of, env)
  const either = (own: string, shared: string) => (env[own] ? own : shared)
  const worldSize = read('WORLD_SIZE', count({ from: 1 }))
  const rank = read('RANK', count({ to: worldSize - 1 }))
  const localWorldSize = read(
    'LOCAL_WORLD_SIZE',
    count({ from: 1, to: worldSize }).default(worldSize),
  )
  return {
    rank,
    worldSize,
    localRank: read(
      either('TSRUN_LOCAL_RANK', 'LOCAL_RANK'),
      count({ to: localWorldSize - 1 }).default(rank % localWorldSize),
    ),
    localWorldSize,
    nodeRank: read('NODE_RANK', count({ to: worldSize - 1 }).default(0)),
    nnodes: read('TSRUN_NNODES', count({ from: 1, to: worldSize }).default(1)),
    masterAddr: read('MASTER_ADDR', filled('a value')),
    masterPort: read(either('TSRUN_STORE_PORT', 'MASTER_PORT'), count({ from: 1, to: 65_535 })),
    runId: env['TSRUN_RUN_ID'] ?? 'none',
    token: (env === process.env ? takeToken() : env['TSRUN_TOKEN']) ?? '',
    restartCount: read('TSRUN_RESTART_COUNT', count().default(0)),
  }
}

const TOKEN = 'tsrun token'

/**
 * Returns the secret of the job. The first call removes the secret from `process.env`, so that
 * child processes do not inherit it. This process and its threads keep a copy.
 */
export function takeToken(): string | undefined {
  const token = process.env['TSRUN_TOKEN']
  if (token === undefined) return getEnvironmentData(TOKEN) as string | undefined
  setEnvironmentData(TOKEN, token)
  delete process.env['TSRUN_TOKEN']
  return token
}

/**
 * The number of ranks, including this one, that share the cores this process is bound to
 * (TSRUN_CORE_RANKS). Undefined if the launcher does not bind ranks.
 */
export function readCoreRanks(): number | undefined {
  return readVariable('TSRUN_CORE_RANKS', count({ from: 1 }).optional())
}

/** Returns the variables from which `readRankEnvironment` reads this rank. */
export function toEnvironment(rank: RankEnvironment): Record<string, string> {
  return {
    RANK: String(rank.rank),
    WORLD_SIZE: String(rank.worldSize),
    LOCAL_RANK: String(rank.localRank),
    LOCAL_WORLD_SIZE: String(rank.localWorldSize),
    NODE_RANK: String(rank.nodeRank),
    GROUP_RANK: String(rank.nodeRank),
    MASTER_ADDR: rank.masterAddr,
    MASTER_PORT: String(rank.freePort ?? rank.masterPort),
    // Set TSRUN_STORE_PORT in any case: a nested job must not inherit the value of the outer job.
    TSRUN_STORE_PORT: String(rank.masterPort),
    TSRUN_NNODES: String(rank.nnodes),
    TSRUN_RUN_ID: rank.runId,
    TSRUN_TOKEN: rank.token,
    TSRUN_RESTART_COUNT: String(rank.restartCount),
  }
}

/** The ports from `first` to `last`, both included. */
export interface PortRange {
  readonly first: number
  readonly last: number
}

/** Parses `29600-29699` or a single port; undefined when the text is neither. */
export function parsePortRange(text: string): PortRange | undefined {
  const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text.trim())
  if (match === null) return undefined
  const first = Number(match[1])
  const last = Number(match[2] ?? match[1])
  return first >= 1 && first <= last && last <= 65_535 ? { first, last } : undefined
}
