import os from 'node:os'
import { syncBuiltinESMExports } from 'node:module'
import { warnOfLoopback } from '../../internals/launcher/nodes.ts'

const { networkInterfaces } = os
afterEach(() => {
  os.networkInterfaces = networkInterfaces
  syncBuiltinESMExports()
})

function warnings(interfaces: typeof networkInterfaces): string[] {
  os.networkInterfaces = interfaces
  syncBuiltinESMExports()
  const said: string[] = []
  warnOfLoopback('127.0.0.1', { say: (kind) => said.push(kind) })
  return said
}

it('warns if the loopback interface is down', () => {
  expect(warnings(() => ({}))).toEqual(['loopback'])
})

it('does not warn if the system refuses to list the interfaces', () => {
  const refuse = (): never => {
    throw new Error('uv_interface_addresses returned Unknown system error 1')
  }
  expect(warnings(refuse)).toEqual([])
})
