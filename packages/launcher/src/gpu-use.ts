import { linesOf } from './job/placement/devices.ts'
import type { GpuUse } from './job/process/process-use.ts'
import { runProgram } from './run-program.ts'

const QUERY = [
  '--query-gpu=index,uuid,utilization.gpu,memory.used',
  '--format=csv,noheader,nounits',
]
/** Time limit in milliseconds. Without persistence mode, the GPU driver takes seconds to start. */
const LIMIT = 10_000

/** Polls nvidia-smi, with at most one process at a time. */
export function watchGpus(env: NodeJS.ProcessEnv, signal: AbortSignal) {
  let asking: Promise<void> | undefined
  let isMissing = false
  const poll = async (): Promise<void> => {
    const { stdout, failure } = await runProgram('nvidia-smi', QUERY, { env, limit: LIMIT, signal })
    isMissing = failure === 'exit code ENOENT'
    gpus.latest = failure === undefined ? linesOf(stdout).map(parseUse) : []
  }
  const gpus = {
    /** The last answer; empty if nvidia-smi is missing or fails. */
    latest: [] as readonly GpuUse[],
    /** Polls, unless a poll is in progress. Resolves when the answer has arrived. */
    async ask(): Promise<void> {
      if (isMissing) return
      asking ??= poll().finally(() => {
        asking = undefined
      })
      await asking
    },
  }
  return gpus
}

function parseUse(line: string): GpuUse {
  const [index = '', uuid = '', busy, mebibytes] = line.split(',').map((field) => field.trim())
  const memory = toNumber(mebibytes)
  return {
    index,
    uuid,
    busy: toNumber(busy),
    memory: memory === undefined ? undefined : memory * 2 ** 20,
  }
}

/** A GPU with MIG instances reports `[N/A]`. */
function toNumber(text = ''): number | undefined {
  return /^\d+$/.test(text) ? Number(text) : undefined
}
