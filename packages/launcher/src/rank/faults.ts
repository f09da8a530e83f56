import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { limitAddressSpace, limitFileSize, limitOpenFiles, shutdownSocket } from '@tsrun/native'
import { SUFFER, type FaultOrder } from './control-message.ts'

/** Bytes of a page, as /proc counts them. */
const PAGE = 4096

/** Where `--chaos` is given: lets the launcher bring faults over this process. */
export function acceptFaults(env: NodeJS.ProcessEnv): void {
  if (env['TSRUN_ACCEPT_FAULTS'] === undefined) return
  // What the script starts is not meant.
  delete env['TSRUN_ACCEPT_FAULTS']
  const storePort = Number(env['TSRUN_STORE_PORT'] ?? env['MASTER_PORT'])
  const suffer = (fault: FaultOrder): void => {
    bring(fault, storePort)
  }
  Object.assign(globalThis, { [Symbol.for(SUFFER)]: suffer })
}

/** Runs in the middle of whatever the main thread does, so most of it begins when that is over. */
function bring(fault: FaultOrder, storePort: number): void {
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
      limitOpenFiles(highestDescriptor() + 1 + fault.limit)
      return
    case 'disk':
      // The kernel also sends a signal, which would end the process.
      process.on('SIGXFSZ', () => undefined)
      limitFileSize(0)
      return
    case 'address-space':
      limitAddressSpace(mappedBytes() + fault.mebibytes * 2 ** 20)
      return
    case 'disconnect':
      disconnect(storePort, 'both')
      return
    case 'half-close':
      disconnect(storePort, 'sending')
      return
    default:
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

/** Fills the heap of JavaScript, which ends the process. */
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

/** The size of what this process has mapped. */
function mappedBytes(): number {
  const [pages = ''] = readFileSync('/proc/self/statm', 'latin1').split(' ')
  return Number(pages) * PAGE
}

/** Of those that are open. Gaps below it are not counted, so it can open a few files more. */
function highestDescriptor(): number {
  return Math.max(...readdirSync('/proc/self/fd').map(Number))
}

/** Ends the connections to other ranks, in both directions or one; that to the store stays. */
function disconnect(storePort: number, which: 'both' | 'sending'): void {
  const connected = new Map<string, number>()
  for (const table of ['tcp', 'tcp6']) {
    const [, ...lines] = readFileSync(`/proc/self/net/${table}`, 'latin1').trim().split('\n')
    for (const line of lines) {
      const fields = line.trim().split(/\s+/)
      const isEstablished = fields[3] === '01'
      if (isEstablished) connected.set(fields[9]!, Number.parseInt(fields[2]!.split(':')[1]!, 16))
    }
  }
  for (const name of readdirSync('/proc/self/fd')) {
    const [, inode = ''] = /^socket:\[(\d+)\]$/.exec(targetOf(`/proc/self/fd/${name}`)) ?? []
    const port = connected.get(inode)
    if (port !== undefined && port !== storePort) shutdownSocket(Number(name), which)
  }
}

function targetOf(link: string): string {
  try {
    return readlinkSync(link)
  } catch {
    // It was closed in the meantime.
    return ''
  }
}
