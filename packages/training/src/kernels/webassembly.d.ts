// The part of WebAssembly that is used here. @types/node 20 leaves it to the DOM library, which also
// declares the globals of a browser. These declarations are compatible with that library.
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

/** The form in which bundlers load it. */
declare module '*.wasm' {
  const bytes: Uint8Array<ArrayBuffer>
  export default bytes
}
