import { execFile } from 'node:child_process'
import { tf } from '@tsrun/training'
import { wrap } from './output.ts'

/** How busy the device of a rank was while its steps ran. */
export interface Utilisation {
  readonly of: 'GPU' | 'CPU'
  /** Of the GPU, from 0 to 1; of the CPU, in cores. */
  readonly mean: number
  readonly least: number
}

const INTERVAL = 100 // milliseconds

/**
 * Polls the utilisation of this rank until `stop`: that of its GPU where nvidia-smi shows one, unless the
 * backend computes on the CPU; otherwise the CPU time of the process over the elapsed time.
 */
export function pollUtilisation(): { readonly stop: () => Promise<Utilisation> } {
  const [stopCpu, stopGpu] = [pollCpu(), pollGpu()]
  return {
    stop: async () => {
      const cpu = stopCpu()
      return (await stopGpu()) ?? cpu
    },
  }
}

/** `CPU      mean 45, 43 %, least 38, 40 %, by rank` */
export function describeUtilisation(ranks: readonly Utilisation[]): string {
  const shown = (part: 'mean' | 'least'): string =>
    ranks.map((rank) => (100 * rank[part]).toFixed(0)).join(', ')
  const text = `mean ${shown('mean')} %, least ${shown('least')} %, by rank`
  return wrap(text, ranks[0]!.of.padEnd(9))
}

function pollCpu(): () => Utilisation {
  const begin = { time: performance.now(), usage: process.cpuUsage() }
  let last = begin
  const since = ({ time, usage }: typeof begin): number => {
    const { user, system } = process.cpuUsage(usage)
    return (user + system) / 1000 / (performance.now() - time)
  }
  const shares: number[] = []
  const timer = setInterval(() => {
    shares.push(since(last))
    last = { time: performance.now(), usage: process.cpuUsage() }
  }, INTERVAL)
  return () => {
    clearInterval(timer)
    const mean = since(begin)
    return { of: 'CPU', mean, least: Math.min(mean, ...shares) }
  }
}

function pollGpu(): () => Promise<Utilisation | undefined> {
  const visible = process.env['CUDA_VISIBLE_DEVICES']
  if (visible === '' || ['wasm', 'cpu'].includes(tf.getBackend())) {
    return () => Promise.resolve(undefined)
  }
  const query = ['--query-gpu=utilization.gpu', '--format=csv,noheader,nounits']
  const which = visible === undefined ? [] : [`--id=${visible.split(',')[0]!}`]
  let kill = (): unknown => undefined
  const output = new Promise<string>((resolve) => {
    const args = [...query, `--loop-ms=${INTERVAL}`, ...which]
    const child = execFile('nvidia-smi', args, (_, stdout) => {
      resolve(stdout)
    })
    kill = () => child.kill()
  })
  return async () => {
    kill()
    const shares = (await output)
      .split('\n')
      .filter((line) => /^\d+$/.test(line.trim()))
      .map((line) => Number(line) / 100)
    if (shares.length === 0) return undefined
    const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length
    return { of: 'GPU', mean, least: Math.min(...shares) }
  }
}
