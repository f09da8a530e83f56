import { correctNegativeAxes } from './array-gradients.ts'
import { correctAveragePoolGradients } from './average-pool-gradients.ts'
import { installEinsum } from './einsum.ts'
import { correctSingleWindows } from './single-windows.ts'
import { correctVolumes } from './volumes.ts'

/** Corrects kernels that are wrong on the backends cpu, wasm and webgpu. */
export function correctKernels(backendName: string): void {
  correctAveragePoolGradients(backendName)
  correctSingleWindows(backendName)
  correctVolumes(backendName)
  correctNegativeAxes(backendName)
  installEinsum(backendName)
}
