import type { AnyTypedArray, DType, TypedArrayOf } from '../dtype.ts'
import type {
  CallOptions,
  MessageOptions,
  ProcessGroup,
  ReduceOptions,
  Work,
} from '../process-group.ts'

/** The forms of a group's calls that follow from the asynchronous ones. */
export abstract class CallForms implements ProcessGroup {
  abstract readonly name: string
  abstract readonly rank: number
  abstract readonly size: number
  abstract readonly ranks: readonly number[]
  abstract alloc<D extends DType>(dtype: D, length: number): TypedArrayOf[D]
  abstract free(buffer: AnyTypedArray): void
  abstract send(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work
  abstract recv(buffer: AnyTypedArray, from: number, options?: MessageOptions): Work
  abstract broadcast(buffer: AnyTypedArray, root: number, options?: CallOptions): Work
  abstract reduce(buffer: AnyTypedArray, root: number, options?: ReduceOptions): Work
  abstract allReduce(buffer: AnyTypedArray, options?: ReduceOptions): Work
  abstract reduceScatter(output: AnyTypedArray, input: AnyTypedArray, options?: ReduceOptions): Work
  abstract allGather(output: AnyTypedArray, input: AnyTypedArray, options?: CallOptions): Work
  abstract barrier(options?: CallOptions): Work
  abstract sendObject(value: unknown, to: number, options?: MessageOptions): Work
  abstract recvObject(from: number, options?: MessageOptions): Work<unknown>
  abstract broadcastObject<T>(value: T, root: number, options?: CallOptions): Work<T>
  abstract allGatherObject<T>(value: T, options?: CallOptions): Work<T[]>
  abstract destroy(): Promise<void>

  isend(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work {
    return this.send(buffer, to, options)
  }

  irecv(buffer: AnyTypedArray, from: number, options?: MessageOptions): Work {
    return this.recv(buffer, from, options)
  }

  sendSync(buffer: AnyTypedArray, to: number, options?: MessageOptions): void {
    this.send(buffer, to, options).wait()
  }

  recvSync(buffer: AnyTypedArray, from: number, options?: MessageOptions): void {
    this.recv(buffer, from, options).wait()
  }

  broadcastSync(buffer: AnyTypedArray, root: number, options?: CallOptions): void {
    this.broadcast(buffer, root, options).wait()
  }

  reduceSync(buffer: AnyTypedArray, root: number, options?: ReduceOptions): void {
    this.reduce(buffer, root, options).wait()
  }

  allReduceSync(buffer: AnyTypedArray, options?: ReduceOptions): void {
    this.allReduce(buffer, options).wait()
  }

  reduceScatterSync(output: AnyTypedArray, input: AnyTypedArray, options?: ReduceOptions): void {
    this.reduceScatter(output, input, options).wait()
  }

  allGatherSync(output: AnyTypedArray, input: AnyTypedArray, options?: CallOptions): void {
    this.allGather(output, input, options).wait()
  }

  barrierSync(options?: CallOptions): void {
    this.barrier(options).wait()
  }

  sendObjectSync(value: unknown, to: number, options?: MessageOptions): void {
    this.sendObject(value, to, options).wait()
  }

  recvObjectSync(from: number, options?: MessageOptions): unknown {
    return this.recvObject(from, options).wait()
  }

  broadcastObjectSync<T>(value: T, root: number, options?: CallOptions): T {
    return this.broadcastObject(value, root, options).wait()
  }

  allGatherObjectSync<T>(value: T, options?: CallOptions): T[] {
    return this.allGatherObject(value, options).wait()
  }
}
