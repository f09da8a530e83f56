import { tsrError } from '@tsrun/core'
import type { Device, WebGpuTensors } from './dawn.ts'

/**
 * Makes reads throw that would fail silently in Node. A synchronous read of values on the device throws,
 * because TensorFlow.js would use a browser canvas. Device errors are otherwise not reported, so the next
 * read throws them.
 */
export function guardReads(backend: WebGpuTensors, device: Device): void {
  let problem: string | undefined
  device.addEventListener('uncapturederror', ({ error }) => {
    problem ??= error.message
  })
  void device.lost.then(({ message }) => {
    problem ??= `the device was lost: ${message}`
  })
  const check = () => {
    if (problem === undefined) return
    throw tsrError('ERR_TSR_BACKEND', { backend: 'webgpu', reason: problem })
  }
  const read = backend.read.bind(backend)
  backend.read = async (dataId) => {
    check()
    try {
      const values = await read(dataId)
      check()
      return values
    } catch (error) {
      check()
      throw error
    }
  }
  backend.readSync = (dataId) => {
    const { values } = backend.tensorMap.get(dataId)
    if (values) return values
    throw tsrError('ERR_TSR_SYNC_READ', { backend: 'webgpu' })
  }
  const cache = backend.convertAndCacheOnCPU.bind(backend)
  // Cache the values only if the tensor still exists: it may be disposed while a `read` is pending.
  backend.convertAndCacheOnCPU = (dataId, values) =>
    backend.tensorMap.has(dataId) ? cache(dataId, values) : values
}
