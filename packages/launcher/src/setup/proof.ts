import { fileURLToPath } from 'node:url'
import { libraryPath, type TensorFlowManifest, gpusAreHidden } from '@tsrun/core'
import { findGpus } from '../job/devices.ts'
import { packageFolder } from '../job/package.ts'
import { runTool, type ToolOutput, type ToolContext } from './tool.ts'

export type Proof =
  | {
      readonly works: true
      readonly tensorflow: string
      readonly devices: readonly string[]
      /** What keeps a binding for GPUs from them. */
      readonly idleGpus: IdleGpus | undefined
    }
  | { readonly works: false; readonly problem: string }

/** Milliseconds: an H100 without kernels of its own in the wheel compiles for minutes at first. */
export const LONGEST_START = 600_000

/** Multiplies, differentiates and lists the devices, in a fresh process. */
export async function prove(
  context: ToolContext,
  {
    folder,
    package: name,
    libraryFolders,
  }: Pick<TensorFlowManifest, 'folder' | 'package' | 'libraryFolders'>,
): Promise<Proof> {
  const program = fileURLToPath(new URL('dist/proof-process.js', packageFolder))
  const output = await runTool(context, process.execPath, [program, folder, name], {
    limit: LONGEST_START,
    env: {
      LD_LIBRARY_PATH: libraryPath({ libraryFolders }, context.env),
      NODE_OPTIONS: '',
      // The log names the devices; with memory growth a GPU that others use is enough.
      TF_CPP_MIN_LOG_LEVEL: '0',
      TF_FORCE_GPU_ALLOW_GROWTH: 'true',
    },
  })
  const text = output?.ok === true ? /\{.*\}$/.exec(output.stdout)?.[0] : undefined
  if (text === undefined) return { works: false, problem: problemOf(output) }
  const { tensorflow, gpu } = JSON.parse(text) as { tensorflow: string; gpu: boolean }
  const log = output!.stderr
  const idleGpus = findIdleGpus(name, { onGpu: gpu, log }, context.env)
  return { works: true, tensorflow, devices: gpu ? gpusIn(log) : ['CPU'], idleGpus }
}

/** What TensorFlow logs about each: `Created device …/device:GPU:0 with … name: NVIDIA H200, pci …`. */
export function gpusIn(log: string): string[] {
  const created = /Created device \S*\/device:GPU:\d+ with .*?\bname: ([^,\n]+)/g
  const names = Array.from(log.matchAll(created), ([, name]) => name!.trim())
  return names.length === 0 ? ['GPU'] : names
}

function problemOf(output: ToolOutput | undefined): string {
  if (output === undefined) return 'Node did not start'
  const lines = output.stderr.split('\n').map((line) => line.trim())
  const error = lines.find((line) => /^\w*Error\b.*:/.test(line)) ?? lines.findLast(Boolean)
  return error ?? 'the process died without a word'
}

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
function findIdleGpus(
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
