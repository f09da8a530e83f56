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

export type BackendName = 'tensorflow' | 'wasm' | 'cpu'
