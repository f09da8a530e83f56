import type { Handle } from './eager.ts'

/** An object of the binding. It is freed with the last reference to it. */
interface Held<Name extends string> {
  readonly held: Name
}

type Communicator = Held<'communicator'>
type Reduction = Held<'reduction'>

/**
 * Collectives of NCCL on the memory of float32 tensors on a GPU, which `tsrun setup` compiles into the
 * binding. No function waits for a GPU or for another rank. They throw an error for other tensors.
 *
 * As with {@link BindingKernels}, the handles of all tensors are in the first argument.
 *
 * Source: packages/launcher/src/setup/native/collectives.cc
 */
export interface BindingCollectives {
  /** Loads the library, once in a process. @returns its version, as 22707 for 2.27.7 */
  load(none: Int32Array, path: string): number

  /** [tensor] -> the address of its GPU on the bus of this host; for a library on the host ''. */
  device(tensors: Int32Array): string

  /** Fills an array of 128 bytes. */
  uniqueId(none: Int32Array, target: Uint8Array): void

  /** A communicator for tensors on the device of [tensor]. Time-outs are in milliseconds. */
  open(
    tensors: Int32Array,
    id: Uint8Array,
    rank: number,
    size: number,
    timeout: number,
  ): Communicator

  /** What is under way, and all that follows, calls back with an error. */
  close(none: Int32Array, communicator: Communicator): void

  /** Keeps the tensors until the reduction has ended. @returns it, and the tensors of its results */
  prepare(tensors: Int32Array): [Reduction, Handle[]]

  /** For one that is not going to be made. */
  release(none: Int32Array, reduction: Reduction): void

  /** @param done - called without arguments at a good end */
  allReduce(
    none: Int32Array,
    communicator: Communicator,
    reduction: Reduction,
    operation: number,
    timeout: number,
    done: (error?: string, timedOut?: boolean) => void,
  ): void
}
