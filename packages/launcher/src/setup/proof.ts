import { fileURLToPath } from 'node:url'
import { libraryPath, type TensorFlowManifest } from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'
import { findIdleGpus, type IdleGpus } from './gpu-use.ts'
import { runTool, type ToolOutput, type Workshop } from './tool.ts'

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
  workshop: Workshop,
  {
    folder,
    package: name,
    libraryFolders,
  }: Pick<TensorFlowManifest, 'folder' | 'package' | 'libraryFolders'>,
): Promise<Proof> {
  const program = fileURLToPath(new URL('dist/proof-process.js', packageFolder))
  const output = await runTool(workshop, process.execPath, [program, folder, name], {
    limit: LONGEST_START,
    env: {
      LD_LIBRARY_PATH: libraryPath({ libraryFolders }, workshop.env),
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
  const idleGpus = findIdleGpus(name, { onGpu: gpu, log }, workshop.env)
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
