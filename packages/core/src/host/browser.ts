import type { Host } from './node.ts'

const turns: (() => void)[] = []
const channel = new MessageChannel()
const port = channel.port1 as unknown as { onmessage: () => void }
port.onmessage = () => turns.shift()?.()

const isOf =
  (...kinds: string[]) =>
  (value: unknown): value is never =>
    kinds.includes(Object.prototype.toString.call(value).slice(8, -1))

/** The host that is a page or a worker of one. */
export const host: Host = {
  env: {},
  output: {},
  processId: 0,
  name: () => 'page',
  types: {
    isAnyArrayBuffer: isOf('ArrayBuffer', 'SharedArrayBuffer'),
    isDate: isOf('Date'),
    isMap: isOf('Map'),
    isNativeError: isOf('Error', 'DOMException'),
    isPromise: isOf('Promise'),
    isRegExp: isOf('RegExp'),
    isSet: isOf('Set'),
    isUint8Array: isOf('Uint8Array'),
  },
  now: () => performance.timeOrigin + performance.now(),
  cpuTime: () => undefined,
  nextTurn: () =>
    new Promise((resolve) => {
      turns.push(resolve)
      channel.port2.postMessage(0)
    }),
  background: (run, milliseconds) => setTimeout(run, milliseconds),
  foreground: () => undefined,
  allowListeners: () => undefined,
  pathOf: String,
  relativePath: (path) => path,
  isBuffer: () => false,
  bytesOf(value) {
    if (typeof value === 'string') return new TextEncoder().encode(value)
    return ArrayBuffer.isView(value)
      ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength)
      : new Uint8Array(value)
  },
  nativeMsgpackr: () => undefined,
  openLog: () => console,
  writeOwnFile() {
    throw new Error('a page has no files')
  },
}
