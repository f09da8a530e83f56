import type { Host } from './node.ts'

const turns: (() => void)[] = []
const channel = new MessageChannel()
const port = channel.port1 as unknown as { onmessage: () => void }
port.onmessage = () => turns.shift()?.()

const isOf =
  (...kinds: string[]) =>
  (value: unknown): value is never =>
    kinds.includes(Object.prototype.toString.call(value).slice(8, -1))

const page = globalThis as unknown as {
  readonly navigator: { readonly hardwareConcurrency: number }
}

/** The host for a web page or a web worker. */
export const host: Host = {
  env: {},
  output: {},
  processId: 0,
  name: () => 'page',
  cores: () => page.navigator.hardwareConcurrency,
  types: {
    isAnyArrayBuffer: isOf('ArrayBuffer', 'SharedArrayBuffer'),
    isDate: isOf('Date'),
    isFloat32Array: isOf('Float32Array'),
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
  writeLog(severity, line) {
    console[severity](line)
  },
  writeOwnFile() {
    throw new Error('a page has no files')
  },
}
