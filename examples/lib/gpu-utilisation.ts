import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

/**
 * How busy the GPUs of this host have been in the last moments, as nvidia-smi tells: `GPU 0 97 %, GPU 1 95 %`.
 * Undefined where there are none.
 */
export async function gpuUtilisation(): Promise<string | undefined> {
  const query = ['--query-gpu=index,utilization.gpu', '--format=csv,noheader,nounits']
  try {
    const { stdout } = await promisify(execFile)('nvidia-smi', query, { timeout: 10_000 })
    const rows = stdout
      .trim()
      .split('\n')
      .map((line) => line.split(',').map((field) => field.trim()))
    return rows.map(([index, busy]) => `GPU ${index!} ${busy!} %`).join(', ')
  } catch {
    return undefined
  }
}
