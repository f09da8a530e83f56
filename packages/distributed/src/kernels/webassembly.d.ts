// Declares the used part of WebAssembly. @types/node 20 expects these types from the DOM library,
// which would add a browser's globals. The declarations match those of the DOM library, so that
// both can be loaded.
declare namespace WebAssembly {
  interface Memory {
    readonly buffer: ArrayBuffer
  }
  var Memory: {
    new (descriptor: { initial: number; maximum?: number; shared?: boolean }): Memory
  }
  interface Module {}
  var Module: {
    new (bytes: NodeJS.ArrayBufferView): Module
  }
  interface Instance {
    readonly exports: Record<string, unknown>
  }
  var Instance: {
    new (module: Module, imports?: Record<string, Record<string, unknown>>): Instance
  }
}

/** Declares a .wasm file as bundlers import it. */
declare module '*.wasm' {
  const bytes: Uint8Array<ArrayBuffer>
  export default bytes
}
