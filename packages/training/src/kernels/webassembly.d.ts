// The used part of the WebAssembly API. @types/node 20 does not declare it, and the DOM library would
// also declare the globals of a browser. These declarations are compatible with the DOM library.
declare namespace WebAssembly {
  interface Memory {
    readonly buffer: ArrayBuffer
    grow(delta: number): number
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

/** Bundlers load a .wasm file as an array of bytes. */
declare module '*.wasm' {
  const bytes: Uint8Array<ArrayBuffer>
  export default bytes
}
