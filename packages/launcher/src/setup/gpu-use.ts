import { gpusAreHidden, type TensorFlowManifest } from '@tsrun/core'
import { findGpus } from '../plan/devices.ts'

/** What TensorFlow logs where it takes no GPU, what says most first. */
const causes = [
  /failed call to cuInit/,
  /Could not load dynamic library/,
  /Cannot dlopen some GPU libraries/,
  /Could not find cuda drivers/,
]

/** A binding that has computed on the CPU although it is for GPUs. */
export interface IdleGpus {
  /** As TensorFlow logs it. */
  readonly reason: string
  /** Whether this host has GPUs; an image may be built where there are none. */
  readonly listed: boolean
}

/**
 * Why a set-up for GPUs computes on the CPU; undefined where it may: on GPUs, with those hidden on
 * purpose, or made for the CPU.
 */
export function findIdleGpus(
  name: TensorFlowManifest['package'],
  { onGpu, log }: { readonly onGpu: boolean; readonly log: string },
  env: NodeJS.ProcessEnv,
): IdleGpus | undefined {
  if (name !== '@tensorflow/tfjs-node-gpu' || onGpu || gpusAreHidden(env)) return undefined
  return { reason: whyCpu(log), listed: findGpus(env).length > 0 }
}

/** What to do about GPUs that are there, as the end of a sentence. */
export const gpuAdvice =
  'see that nvidia-smi works and the driver is new enough, name a TensorFlow with CUDA with --wheel or ' +
  '--python, or set CUDA_VISIBLE_DEVICES to nothing to compute on the CPU'

/** Without the prefix of the log, as far as the first sentence goes. */
export function whyCpu(log: string): string {
  const lines = log.split('\n')
  const line = causes
    .map((cause) => lines.find((text) => cause.test(text)))
    .find((found) => found !== undefined)
  if (line === undefined) return 'TensorFlow does not say why: it may be without CUDA'
  const [sentence = ''] = line.replace(/^.*?\.cc:\d+\] /, '').split('. ')
  return sentence.replace(/\.$/, '').trim().slice(0, 200)
}
