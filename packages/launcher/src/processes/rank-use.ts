import { readFileSync } from 'node:fs'
import { monotonicNow } from '@tsrun/core'
import type { RankStatus } from '@tsrun/distributed/record'
import type { RankRates } from '@tsrun/observe'
import { cpuSeconds, residentBytes } from './process-use.ts'

/** What nvidia-smi says about a GPU. */
export interface GpuUse {
  readonly index: string
  readonly uuid: string
  /** The part of the time in which it computed, in percent. */
  readonly busy: number | undefined
  /** Bytes in use, by all processes. */
  readonly memory: number | undefined
}

/** What a rank has used up to a moment. */
export interface RankUse {
  /** Milliseconds on the monotonic clock. */
  readonly at: number
  /** Milliseconds in no operation. */
  readonly ownTime: number
  readonly step: number | undefined
  /** Undefined: the process has ended. */
  readonly cpuSeconds: number | undefined
  /** Milliseconds in which its main thread was ready and waited for a core. */
  readonly delay: number
  /** Whether it may use a GPU. */
  readonly hasGpu: boolean
  readonly gpu: GpuUse | undefined
}

/** The shortest time in no operation, in milliseconds, that the clock ticks of CPU times can divide. */
const SHORTEST = 50

/** What a rank has used so far, as /proc and nvidia-smi say. */
export function useOf({ pid, ownTime, step }: RankStatus, gpus: readonly GpuUse[] = []): RankUse {
  return {
    at: monotonicNow(),
    ownTime,
    step,
    cpuSeconds: cpuSeconds(pid),
    delay: delayOf(pid),
    hasGpu: visibleDevices(pid) !== '',
    gpu: gpuOf(pid, gpus),
  }
}

/**
 * The part of the time in no operation, from 0 to 1, in which the rank or its GPU computed; undefined where
 * that was not measured.
 */
export function computingShare(before: RankUse | undefined, now: RankUse): number | undefined {
  if (before?.cpuSeconds === undefined || now.cpuSeconds === undefined) return undefined
  const ownTime = now.ownTime - before.ownTime
  if (ownTime < SHORTEST) return undefined
  const busy = now.gpu?.busy
  const onGpu = ((busy ?? 0) / 100) * (now.at - before.at)
  const onCpu = 1000 * (now.cpuSeconds - before.cpuSeconds)
  const share = Math.min(1, Math.max(onCpu, onGpu) / ownTime)
  if (share >= 0.5) return share
  // A rank without a core is not idle, and one may wait for a GPU whose use is unknown.
  const isStarved = (onCpu + now.delay - before.delay) / ownTime >= 0.5
  return isStarved || (now.hasGpu && busy === undefined) ? undefined : share
}

/** What a rank has used between two moments. */
export function ratesOf(pid: number, before: RankUse | undefined, now: RankUse): RankRates {
  const seconds = before === undefined ? 0 : (now.at - before.at) / 1000
  const rate = (from: number | undefined, to: number | undefined): number | undefined =>
    from === undefined || to === undefined || seconds === 0 ? undefined : (to - from) / seconds
  return {
    computing: computingShare(before, now),
    cpu: rate(before?.cpuSeconds, now.cpuSeconds),
    stepsPerSecond: rate(before?.step, now.step),
    memory: residentBytes(pid),
    gpu: now.gpu?.busy,
    gpuMemory: now.gpu?.memory,
  }
}

/** The GPU that the launcher has given to a rank, or the first of several that it may use. */
function gpuOf(pid: number, gpus: readonly GpuUse[]): GpuUse | undefined {
  if (gpus.length === 0) return undefined
  const [name = ''] = visibleDevices(pid).split(',')
  // A UUID may be shortened.
  return gpus.find(
    ({ index, uuid }) => index === name || (name.length > 4 && uuid.startsWith(name)),
  )
}

function delayOf(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[1]) / 1e6
  } catch {
    return 0
  }
}

/** Empty: neither the launcher nor a user has chosen. */
function visibleDevices(pid: number): string {
  try {
    const environment = readFileSync(`/proc/${pid}/environ`, 'utf8')
    return /(?:^|\0)CUDA_VISIBLE_DEVICES=([^\0]*)/.exec(environment)?.[1] ?? ''
  } catch {
    return ''
  }
}
