import { monotonicNow } from '@tsrun/core'
import type { RankStatus } from '@tsrun/distributed/record'
import type { RankRates } from '@tsrun/observe'
import { bytesIn, readSystemFile } from '../placement/limits.ts'
import { sendSignal, statFields } from './rank-process.ts'

/** Clock ticks per second in /proc/<pid>/stat: USER_HZ, which is 100 on every Linux that Node supports. */
const TICKS = 100

/** CPU seconds of all threads of a process; undefined if it has ended, or without /proc. */
export function cpuSeconds(pid: number): number | undefined {
  const fields = statFields(pid)
  // utime and stime, which are fields 14 and 15 of the file.
  return fields && (Number(fields[11]) + Number(fields[12])) / TICKS
}

/** Resident bytes of a process; undefined if it has ended, or without /proc. */
export function residentBytes(pid: number): number | undefined {
  return bytesIn(`/proc/${pid}/status`, 'VmRSS')
}

export function peakBytes(pid: number): number | undefined {
  return bytesIn(`/proc/${pid}/status`, 'VmHWM')
}

/** Whether a process with this ID exists; it may belong to another user. */
export function isAlive(pid: number): boolean {
  return sendSignal(pid, 0)
}

export interface GpuUse {
  readonly index: string
  readonly uuid: string
  /** Utilization in percent. */
  readonly busy: number | undefined
  /** Bytes of GPU memory that all processes use. */
  readonly memory: number | undefined
}

/** The cumulative usage of a rank at one time. */
export type RankUse = ReturnType<typeof useOf>

/** The shortest measured time outside operations in milliseconds: CPU times have a coarse resolution. */
const SHORTEST = 50

/** The usage of a rank so far, from /proc and nvidia-smi. */
export function useOf({ pid, ownTime, step }: RankStatus, gpus: readonly GpuUse[] = []) {
  return {
    /** Milliseconds on the monotonic clock. */
    at: monotonicNow(),
    /** Milliseconds outside operations so far. */
    ownTime,
    step,
    /** Undefined if the process has ended. */
    cpuSeconds: cpuSeconds(pid),
    /** Milliseconds for which the main thread was runnable but waited for a core. */
    delay: Number(readSystemFile(`/proc/${pid}/schedstat`)?.split(' ')[1] ?? 0) / 1e6,
    hasGpu: visibleDevices(pid) !== '',
    gpu: gpuOf(pid, gpus),
  }
}

/**
 * The fraction (0 to 1) of the time outside operations in which the rank or its GPU computed; undefined if
 * not measured.
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
  // A rank that waits for a core is not idle. A rank with a GPU of unknown utilization may be computing.
  const isStarved = (onCpu + now.delay - before.delay) / ownTime >= 0.5
  return isStarved || (now.hasGpu && busy === undefined) ? undefined : share
}

/** The usage rates of a rank between two times. */
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

/** The GPU that the launcher assigned to a rank, or the first of several that it may use. */
function gpuOf(pid: number, gpus: readonly GpuUse[]): GpuUse | undefined {
  if (gpus.length === 0) return undefined
  const [name = ''] = visibleDevices(pid).split(',')
  // A UUID may be abbreviated.
  return gpus.find(
    ({ index, uuid }) => index === name || (name.length > 4 && uuid.startsWith(name)),
  )
}

/** CUDA_VISIBLE_DEVICES of a process; empty if neither the launcher nor a user has set it. */
function visibleDevices(pid: number): string {
  const environment = readSystemFile(`/proc/${pid}/environ`) ?? ''
  return /(?:^|\0)CUDA_VISIBLE_DEVICES=([^\0]*)/.exec(environment)?.[1] ?? ''
}
