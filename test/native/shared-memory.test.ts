import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { addressOf, mapFileOver, mapPrivateOver } from '@tsrun/native'
import { describeNative } from './support.ts'

describeNative('shared memory', () => {
  let folder: string
  let path: string
  beforeEach(() => {
    folder = mkdtempSync('/dev/shm/tsrun-test-')
    path = join(folder, 'page')
    writeFileSync(path, new Uint8Array(3 * 4096))
  })
  afterEach(() => {
    rmSync(folder, { recursive: true })
  })

  it('maps the file only to the given pages of a memory', () => {
    const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true })
    const bytes = new Uint8Array(memory.buffer)
    bytes.fill(9)
    const fd = openSync(path, 'r+')
    mapFileOver(fd, addressOf(bytes) + 4096, 4096, 8192)
    closeSync(fd)
    bytes[4096] = 1
    bytes[8191] = 2
    const file = readFileSync(path)
    expect([file[8192], file[12287], file[0]]).toEqual([1, 2, 0])
    expect([bytes[4095], bytes[8192]]).toEqual([9, 9])
    mapPrivateOver(addressOf(bytes) + 4096, 4096)
    expect([bytes[4096], bytes[8191]]).toEqual([0, 0])
    bytes[4096] = 7
    expect(readFileSync(path)[8192]).toBe(1)
  })

  it('refuses addresses within a page and descriptors that are not open', () => {
    const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true })
    const address = addressOf(new Uint8Array(memory.buffer))
    const failed = expect.objectContaining({ code: 'ERR_TSR_SYSTEM_CALL' }) as Error
    expect(() => {
      mapPrivateOver(address + 1, 4096)
    }).toThrow(failed)
    expect(() => {
      mapFileOver(-1, address, 4096)
    }).toThrow(failed)
  })
})
