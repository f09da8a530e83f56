import type { AnyTypedArray } from './dtype.ts'
import { defaultGroup } from './functions.ts'
import type {
  BatchedMessage,
  CallOptions,
  CollectiveOptions,
  MessageOptions,
  MonitoredBarrierOptions,
  ReceivedObject,
  ReduceOptions,
  Source,
  Work,
} from './process-group.ts'

/*
 * The calls of `ProcessGroup` on the default group.
 */

export function send(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work {
  return defaultGroup('send').send(buffer, to, options)
}

export function recv(buffer: AnyTypedArray, from: Source, options?: MessageOptions): Work<number> {
  return defaultGroup('recv').recv(buffer, from, options)
}

export function isend(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work {
  return defaultGroup('isend').isend(buffer, to, options)
}

export function irecv(buffer: AnyTypedArray, from: Source, options?: MessageOptions): Work<number> {
  return defaultGroup('irecv').irecv(buffer, from, options)
}

export function batchIsendIrecv(
  messages: readonly BatchedMessage[],
  options?: CallOptions,
): Work<unknown>[] {
  return defaultGroup('batchIsendIrecv').batchIsendIrecv(messages, options)
}

export function broadcast(buffer: AnyTypedArray, root: number, options?: CollectiveOptions): Work {
  return defaultGroup('broadcast').broadcast(buffer, root, options)
}

export function reduce(buffer: AnyTypedArray, root: number, options?: ReduceOptions): Work {
  return defaultGroup('reduce').reduce(buffer, root, options)
}

export function allReduce(buffer: AnyTypedArray, options?: ReduceOptions): Work {
  return defaultGroup('allReduce').allReduce(buffer, options)
}

export function allReduceCoalesced(
  buffers: readonly AnyTypedArray[],
  options?: ReduceOptions,
): Work {
  return defaultGroup('allReduceCoalesced').allReduceCoalesced(buffers, options)
}

export function reduceScatter(
  output: AnyTypedArray,
  input: AnyTypedArray,
  options?: ReduceOptions,
): Work {
  return defaultGroup('reduceScatter').reduceScatter(output, input, options)
}

export function allGather(
  output: AnyTypedArray,
  input: AnyTypedArray,
  options?: CollectiveOptions,
): Work {
  return defaultGroup('allGather').allGather(output, input, options)
}

export function allGatherV(
  output: AnyTypedArray,
  input: AnyTypedArray,
  counts: readonly number[],
  options?: CollectiveOptions,
): Work {
  return defaultGroup('allGatherV').allGatherV(output, input, counts, options)
}

export function gather(
  output: AnyTypedArray | null,
  input: AnyTypedArray,
  root: number,
  options?: CollectiveOptions,
): Work {
  return defaultGroup('gather').gather(output, input, root, options)
}

export function gatherV(
  output: AnyTypedArray | null,
  input: AnyTypedArray,
  counts: readonly number[] | null,
  root: number,
  options?: CollectiveOptions,
): Work {
  return defaultGroup('gatherV').gatherV(output, input, counts, root, options)
}

export function scatter(
  output: AnyTypedArray,
  input: AnyTypedArray | null,
  root: number,
  options?: CollectiveOptions,
): Work {
  return defaultGroup('scatter').scatter(output, input, root, options)
}

export function scatterV(
  output: AnyTypedArray,
  input: AnyTypedArray | null,
  counts: readonly number[] | null,
  root: number,
  options?: CollectiveOptions,
): Work {
  return defaultGroup('scatterV').scatterV(output, input, counts, root, options)
}

export function allToAll(
  output: AnyTypedArray,
  input: AnyTypedArray,
  options?: CollectiveOptions,
): Work {
  return defaultGroup('allToAll').allToAll(output, input, options)
}

export function allToAllV(
  output: AnyTypedArray,
  input: AnyTypedArray,
  outputCounts: readonly number[],
  inputCounts: readonly number[],
  options?: CollectiveOptions,
): Work {
  return defaultGroup('allToAllV').allToAllV(output, input, outputCounts, inputCounts, options)
}

export function barrier(options?: CollectiveOptions): Work {
  return defaultGroup('barrier').barrier(options)
}

export function monitoredBarrier(options?: MonitoredBarrierOptions): Work {
  return defaultGroup('monitoredBarrier').monitoredBarrier(options)
}

export function sendObject(value: unknown, to: number, options?: MessageOptions): Work {
  return defaultGroup('sendObject').sendObject(value, to, options)
}

export function recvObject(from: number, options?: MessageOptions): Work<unknown>
export function recvObject(from: 'any' | null, options?: MessageOptions): Work<ReceivedObject>
export function recvObject(from: Source, options?: MessageOptions): Work<unknown> {
  const group = defaultGroup('recvObject')
  return from === 'any' || from === null
    ? group.recvObject(from, options)
    : group.recvObject(from, options)
}

export function broadcastObject<T>(value: T, root: number, options?: CallOptions): Work<T> {
  return defaultGroup('broadcastObject').broadcastObject(value, root, options)
}

export function allGatherObject<T>(value: T, options?: CallOptions): Work<T[]> {
  return defaultGroup('allGatherObject').allGatherObject(value, options)
}

export function gatherObject<T>(
  value: T,
  root: number,
  options?: CallOptions,
): Work<T[] | undefined> {
  return defaultGroup('gatherObject').gatherObject(value, root, options)
}

export function scatterObject<T>(
  values: readonly T[] | null,
  root: number,
  options?: CallOptions,
): Work<T> {
  return defaultGroup('scatterObject').scatterObject(values, root, options)
}

export function allToAllObject<T>(values: readonly T[], options?: CallOptions): Work<T[]> {
  return defaultGroup('allToAllObject').allToAllObject(values, options)
}
