import { readFileSync } from 'node:fs'
import { limitResource, statusOf } from '@tsrun/native'
import { INJECT } from '../protocol/channel.ts'
import type { FaultOrder } from '../protocol/control.ts'
import { disconnect, disturb } from './wire-faults.ts'

/** Bytes of a page in /proc. */
const PAGE = 4096

/** Lets the launcher inject faults into this process (`--chaos`). */
export function acceptFaults(): void {
  const { env } = process
  if (env['TSRUN_ACCEPT_FAULTS'] === undefined) return
  // Do not inject faults into child processes.
  delete env['TSRUN_ACCEPT_FAULTS']
  const ports = [env['TSRUN_STORE_PORT'], env['MASTER_PORT']]
  const storePort = Number(ports.find((port) => port !== undefined && port !== ''))
  Object.assign(globalThis, {
    [Symbol.for(INJECT)]: (fault: FaultOrder) => {
      inject(fault, storePort)
    },
  })
}

/** V8 interrupts the main thread to call this function, so most faults only schedule their effect. */
function inject(fault: FaultOrder, storePort: number): void {
  switch (fault.kind) {
    case 'throw':
      queueMicrotask(() => {
        throw chaosError()
      })
      return
    case 'reject':
      void Promise.reject(chaosError())
      return
    case 'exit':
      setImmediate(() => process.exit(fault.code))
      return
    case 'busy':
      keepBusy(fault.forSeconds * 1000)
      return
    case 'memory':
      setImmediate(useUpMemory)
      return
    case 'clock':
      moveClock(fault.bySeconds * 1000)
      return
    case 'descriptors':
      limitResource('openFiles', firstFree())
      return
    case 'disk':
      // Ignore SIGXFSZ, which would end the process. The kernel sends it when a write exceeds the limit.
      process.on('SIGXFSZ', () => undefined)
      limitResource('fileSize', 0)
      return
    case 'address-space':
      limitResource('addressSpace', mappedBytes())
      return
    case 'disconnect':
      disconnect(storePort, 'both')
      return
    case 'half-close':
      disconnect(storePort, 'sending')
      return
    case 'delay':
    case 'drop':
    case 'corrupt':
    case 'truncate':
      disturb(fault, storePort)
      return
    default:
      // The launcher injects the other kinds of faults with signals.
      return
  }
}

function chaosError(): Error {
  return new Error('a fault of --chaos')
}

function keepBusy(milliseconds: number): void {
  const end = performance.now() + milliseconds
  while (performance.now() < end);
}

/** Exhausts the JavaScript heap, which ends the process. */
function useUpMemory(): void {
  const kept: number[][] = []
  for (;;) kept.push(new Array<number>(100_000).fill(kept.length + 0.5))
}

function moveClock(milliseconds: number): void {
  const now = Date.now.bind(Date)
  const Real = Date
  globalThis.Date = new Proxy(Real, {
    construct: (target, args: [number?]) =>
      Reflect.construct(target, args.length === 0 ? [now() + milliseconds] : args) as Date,
    apply: () => new Real(now() + milliseconds).toString(),
    get: (target, key) =>
      key === 'now' ? () => now() + milliseconds : (Reflect.get(target, key) as unknown),
  })
}

function mappedBytes(): number {
  const [pages = ''] = readFileSync('/proc/self/statm', 'latin1').split(' ')
  return Number(pages) * PAGE
}

function firstFree(): number {
  let descriptor = 0
  while (isOpen(descriptor)) descriptor++
  return descriptor
}

function isOpen(descriptor: number): boolean {
  try {
    statusOf(descriptor)
    return true
  } catch {
    return false
  }
}
