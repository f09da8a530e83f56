/** A tensor backend that is loaded and current. */
export interface Backend extends BackendFacts {
  readonly name: BackendName
}

/** What a backend says of itself when it is loaded. */
export interface BackendFacts {
  /** What computes, for people: `CPU`, or the name of a GPU. */
  readonly device: string
  /** Threads of this process that compute on the CPU. */
  readonly threads: number
}

export interface BackendOptions {
  /**
   * `webgpu`: the name of an adapter, or a part of it; default: the variable TSRUN_WEBGPU_ADAPTER,
   * else the best adapter that is there.
   */
  readonly adapter?: string
}

export type BackendName = 'tensorflow' | 'webgpu' | 'wasm' | 'cpu'
