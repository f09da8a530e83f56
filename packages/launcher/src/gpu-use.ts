import { run } from './doctor/machine.ts'
import { linesOf } from './job/placement/devices.ts'
import type { GpuUse } from './job/process/rank-use.ts'

const QUERY = [
  '--query-gpu=index,uuid,utilization.gpu,memory.used',
  '--format=csv,noheader,nounits',
]
/** Milliseconds. Without persistence mode, the GPU driver takes seconds to start. */
const LIMIT = 10_000

/** Polls nvidia-smi, with at most one process at a time. */
export class GpuWatch {
  /** The last answer; empty if nvidia-smi is missing or fails. */
  latest: readonly GpuUse[] = []
  readonly #env: NodeJS.ProcessEnv
  readonly #signal: AbortSignal
  #asking: Promise<void> | undefined
  #isMissing = false

  constructor(env: NodeJS.ProcessEnv, signal: AbortSignal) {
    this.#env = env
    this.#signal = signal
  }

  /** Polls, unless a poll is in progress. Resolves when the answer has arrived. */
  async ask(): Promise<void> {
    if (this.#isMissing) return
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined
    })
    await this.#asking
  }

  async #ask(): Promise<void> {
    const options = { env: this.#env, limit: LIMIT, signal: this.#signal }
    const { stdout, failure } = await run('nvidia-smi', QUERY, options)
    this.#isMissing = failure === 'exit code ENOENT'
    this.latest = failure === undefined ? linesOf(stdout).map(parseUse) : []
  }
}

function parseUse(line: string): GpuUse {
  const [index = '', uuid = '', busy, mebibytes] = line.split(',').map((field) => field.trim())
  const memory = toNumber(mebibytes)
  return {
    ...{ index, uuid, busy: toNumber(busy) },
    memory: memory === undefined ? undefined : memory * 2 ** 20,
  }
}

/** A GPU with MIG instances reports `[N/A]`. */
function toNumber(text = ''): number | undefined {
  return /^\d+$/.test(text) ? Number(text) : undefined
}
