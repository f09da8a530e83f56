import { tsrError } from '@tsrun/core'
import type { Device, DeviceBackend } from './dawn.ts'

/**
 * Makes reads of a backend in Node honest: values that are on the device only cannot be read at
 * once, which TensorFlow.js tries with a browser's canvas; and what went wrong on the device, which
 * nobody is told about, comes out at the next read.
 */
export function guardReads(backend: DeviceBackend, device: Device): void {
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
  // The copy is under way once `read` returns: the tensor may be disposed while it is awaited.
  backend.convertAndCacheOnCPU = (dataId, values) =>
    backend.tensorMap.has(dataId) ? cache(dataId, values) : values
}
