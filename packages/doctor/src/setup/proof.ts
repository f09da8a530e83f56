import { fileURLToPath } from 'node:url'
import {
  flag,
  gpusAreHidden,
  libraryPath,
  object,
  parseJson,
  text,
  type TensorFlowManifest,
} from '@tsrun/core'
import { findGpus } from '@tsrun/launcher/host'
import { packageFolder } from '../package-folder.ts'
import { runTool, testOptions, type ToolOutput, type ToolContext } from './tool.ts'

interface Proof {
  readonly tensorflow: string
  readonly devices: readonly string[]
  /**
   * Why a GPU installation computes on the CPU. Undefined for a CPU installation, if a GPU is used,
   * or if the user has hidden the GPUs.
   */
  readonly idleGpus: IdleGpus | undefined
}

/** Milliseconds. The driver compiles kernels for minutes if the wheel has none for the GPU. */
export const LONGEST_START = 600_000

/** Tests a binding in a new process. @returns the problem if it does not work */
export async function prove(
  context: ToolContext,
  {
    folder,
    package: name,
    libraryFolders,
  }: Pick<TensorFlowManifest, 'folder' | 'package' | 'libraryFolders'>,
): Promise<Proof | string> {
  const program = fileURLToPath(new URL('dist/proof-process.js', packageFolder))
  const output = await runTool(context, process.execPath, [program, folder, name], {
    limit: LONGEST_START,
    env: {
      LD_LIBRARY_PATH: libraryPath({ libraryFolders }, context.env),
      NODE_OPTIONS: testOptions(context),
      // Level 0 logs the devices. Memory growth lets other processes use the GPU at the same time.
      TF_CPP_MIN_LOG_LEVEL: '0',
      TF_FORCE_GPU_ALLOW_GROWTH: 'true',
    },
  })
  const [line = ''] = (output.ok ? /\{.*\}$/.exec(output.stdout) : undefined) ?? []
  const found = parseJson(line, object({ tensorflow: text, gpu: flag }))
  if (found === undefined) return problemOf(output)
  const { tensorflow, gpu } = found
  const log = output.stderr
  const isIdle = name === '@tensorflow/tfjs-node-gpu' && !gpu && !gpusAreHidden(context.env)
  const idleGpus = isIdle
    ? { reason: whyCpu(log), listed: findGpus(context.env).length > 0 }
    : undefined
  return { tensorflow, devices: gpu ? gpusIn(log) : ['CPU'], idleGpus }
}

/** Finds GPUs in lines such as `Created device …/device:GPU:0 with … name: NVIDIA H200, pci …`. */
export function gpusIn(log: string): string[] {
  const created = /Created device \S*\/device:GPU:\d+ with .*?\bname: ([^,\n]+)/g
  const names = Array.from(log.matchAll(created), ([, name]) => name!.trim())
  return names.length === 0 ? ['GPU'] : names
}

/** Finds the error in the output of a test that failed. */
export function problemOf({ isMissing, stderr }: ToolOutput): string {
  if (isMissing) return 'Node did not start'
  const lines = stderr.split('\n').map((line) => line.trim())
  const error = lines.find((line) => /^\w*Error\b.*:/.test(line)) ?? lines.findLast(Boolean)
  return error ?? 'the process ended without a message'
}

/** TensorFlow's log messages for unused GPUs, the most specific first. */
const causes = [
  /failed call to cuInit/,
  /Could not load dynamic library/,
  /Cannot dlopen some GPU libraries/,
  /Could not find cuda drivers/,
]

export interface IdleGpus {
  /** The message in TensorFlow's log. */
  readonly reason: string
  /** Whether this host has GPUs. The host that builds a container image may have none. */
  readonly listed: boolean
}

/** Advice for unused GPUs, as the end of a sentence. */
export const gpuAdvice =
  'check that nvidia-smi works and the driver is new enough, name a TensorFlow with CUDA with --wheel or ' +
  '--python, or set CUDA_VISIBLE_DEVICES to nothing to compute on the CPU'

/** Extracts the first sentence of TensorFlow's message about unused GPUs. */
export function whyCpu(log: string): string {
  const lines = log.split('\n')
  const line = causes.map((cause) => lines.find((text) => cause.test(text))).find(Boolean)
  if (line === undefined) return 'TensorFlow does not say why; it may have been built without CUDA'
  const [sentence = ''] = line.replace(/^.*?\.cc:\d+\] /, '').split('. ')
  return sentence.replace(/\.$/, '').trim().slice(0, 200)
}
