import type { AnyTypedArray } from '../../dtype.ts'
import { digestOf } from '../../operation.ts'
import type { CallOptions, CollectiveOptions, ReduceOptions } from '../../call-options.ts'
import {
  bufferError,
  checkBuffer,
  checkOverlap,
  checkRank,
  checkCounts,
  checkReduction,
  checkRooted,
  checkSameDType,
  checkSlices,
  checkUneven,
  isList,
  type Member,
} from './arguments.ts'
import type { Starter } from './call.ts'
import { DerivedForms } from './derived-forms.ts'
import type { FollowedWork } from './pending-work.ts'

type Buffer = AnyTypedArray

/**
 * The collectives of a group. Each method checks its arguments and starts the operation;
 * `GroupCalls` documents them.
 *
 * The `Call` objects of fast operations have the same properties in the same order. V8 then gives
 * them one hidden class, so that the code that reads them stays fast.
 */
export class Collectives extends DerivedForms implements Member {
  readonly name: string
  readonly rank: number
  readonly size: number

  constructor({ name, rank, size }: Member, operations: Starter) {
    super(operations)
    this.name = name
    this.rank = rank
    this.size = size
  }

  broadcast(buffer: Buffer, root: number, options?: CollectiveOptions): FollowedWork<void> {
    const name = 'broadcast'
    checkRank(name, this, root)
    return this.operations.start({
      name,
      dtype: checkBuffer(name, 'buffer', buffer, options),
      count: buffer.length,
      // In a fake world, the root passes the same values as this rank.
      input: this.rank === root || this.operations.isFake === true ? buffer : undefined,
      output: buffer,
      peer: root,
      reduction: undefined,
      options,
    })
  }

  reduce(buffer: Buffer, root: number, options?: ReduceOptions): FollowedWork<void> {
    checkRank('reduce', this, root)
    return this.#startReduction('reduce', buffer, root, options)
  }

  allReduce(buffer: Buffer, options?: ReduceOptions): FollowedWork<void> {
    return this.#startReduction('allReduce', buffer, 0, options)
  }

  allReduceCoalesced(buffers: readonly Buffer[], options?: ReduceOptions): FollowedWork<void> {
    const name = 'allReduceCoalesced'
    if (!isList(buffers)) throw bufferError(name, 'buffers is not a list')
    const list = buffers.map((buffer, i) => ({ name: `buffers[${i}]`, buffer }))
    const [first] = list
    if (first === undefined) throw bufferError(name, 'the list of buffers is empty')
    const dtype = checkBuffer(name, first.name, first.buffer, options)
    for (const each of list.slice(1)) checkSameDType(name, first, each, options)
    const reduction = checkReduction(name, dtype, options)
    const lengths = buffers.map(({ length }) => length)
    return this.operations.start({
      name,
      dtype,
      count: lengths.reduce((a, b) => a + b, 0),
      input: undefined,
      output: undefined,
      peer: digestOf(lengths),
      reduction,
      options,
      parts: buffers,
    })
  }

  reduceScatter(output: Buffer, input: Buffer, options?: ReduceOptions): FollowedWork<void> {
    return this.#startSliced('reduceScatter', output, input, options)
  }

  allGather(output: Buffer, input: Buffer, options?: CollectiveOptions): FollowedWork<void> {
    return this.#startSliced('allGather', output, input, options)
  }

  gather(
    output: Buffer | null,
    input: Buffer,
    root: number,
    options?: CollectiveOptions,
  ): FollowedWork<void> {
    return this.#startRooted('gather', output, input, root, options)
  }

  scatter(
    output: Buffer,
    input: Buffer | null,
    root: number,
    options?: CollectiveOptions,
  ): FollowedWork<void> {
    return this.#startRooted('scatter', input, output, root, options)
  }

  allToAll(output: Buffer, input: Buffer, options?: CollectiveOptions): FollowedWork<void> {
    const name = 'allToAll'
    checkBuffer(name, 'input', input, options)
    const count = Math.floor(input.length / this.size)
    const slice = input.subarray(0, count)
    checkSlices(name, this.size, named('input', input), named('a slice', slice), options)
    const part = named('a slice of input', slice)
    const dtype = checkSlices(name, this.size, named('output', output), part, options)
    checkOverlap(name, output, input, undefined)
    return this.operations.start({
      name,
      dtype,
      count,
      input,
      output,
      peer: 0,
      reduction: undefined,
      options,
    })
  }

  allGatherV(
    output: Buffer,
    input: Buffer,
    counts: readonly number[],
    options?: CollectiveOptions,
  ): FollowedWork<void> {
    const name = 'allGatherV'
    const [whole, slice] = [named('output', output), named('input', input)]
    const dtype = checkUneven(name, this, whole, slice, counts, options)
    return this.operations.start({ name, dtype, count: 0, table: counts, input, output, options })
  }

  allToAllV(
    output: Buffer,
    input: Buffer,
    outputCounts: readonly number[],
    inputCounts: readonly number[],
    options?: CollectiveOptions,
  ): FollowedWork<void> {
    const name = 'allToAllV'
    const { rank, size } = this
    const dtype = checkSameDType(name, named('output', output), named('input', input), options)
    checkCounts(name, size, 'inputCounts', inputCounts, named('input', input))
    checkCounts(name, size, 'outputCounts', outputCounts, named('output', output))
    const [sent, received] = [inputCounts[rank]!, outputCounts[rank]!]
    if (sent !== received) {
      const problem = `rank ${rank} sends itself inputCounts[${rank}] = ${sent} elements, but expects outputCounts[${rank}] = ${received}`
      throw bufferError(name, problem)
    }
    checkOverlap(name, output, input, undefined)
    const table = [...inputCounts, ...outputCounts]
    return this.operations.start({ name, dtype, count: 0, table, input, output, options })
  }

  barrier(options?: CollectiveOptions): FollowedWork<void> {
    return this.operations.start({
      name: 'barrier',
      dtype: 'float32',
      count: 0,
      input: undefined,
      output: undefined,
      peer: 0,
      reduction: undefined,
      options,
    })
  }

  monitoredBarrier(options?: CallOptions): FollowedWork<void> {
    return this.operations.start({
      name: 'monitoredBarrier',
      dtype: 'float32',
      count: 0,
      input: undefined,
      output: undefined,
      // Let the time-out of rank 0 end first, even if rank 0 arrives last. Only rank 0 can name the
      // missing ranks.
      patience: this.rank === 0 ? 1 : 2,
      options,
    })
  }

  /** Starts a call in which `root` gathers or scatters the slices of `whole`. */
  #startRooted(
    name: 'gather' | 'scatter',
    whole: Buffer | null,
    slice: Buffer,
    root: number,
    options: CollectiveOptions | undefined,
  ): FollowedWork<void> {
    checkRank(name, this, root)
    const isGather = name === 'gather'
    const part = named(isGather ? 'input' : 'output', slice)
    const all = this.rank === root ? named(isGather ? 'output' : 'input', whole) : undefined
    const dtype = checkRooted(name, this, all, part, options)
    const buffer = all?.buffer ?? undefined
    return this.operations.start({
      name,
      dtype,
      count: slice.length,
      input: isGather ? slice : buffer,
      output: isGather ? buffer : slice,
      peer: root,
      reduction: undefined,
      options,
    })
  }

  #startReduction(
    name: 'reduce' | 'allReduce',
    buffer: Buffer,
    peer: number,
    options: ReduceOptions | undefined,
  ): FollowedWork<void> {
    const dtype = checkBuffer(name, 'buffer', buffer, options)
    return this.operations.start({
      name,
      dtype,
      count: buffer.length,
      input: buffer,
      output: buffer,
      peer,
      reduction: checkReduction(name, dtype, options),
      options,
    })
  }

  /** Starts a call in which each rank has a buffer of `size` slices and one slice. */
  #startSliced(
    name: 'reduceScatter' | 'allGather',
    output: Buffer,
    input: Buffer,
    options: ReduceOptions | undefined,
  ): FollowedWork<void> {
    const isGather = name === 'allGather'
    const first = named('output', output)
    const second = named('input', input)
    const whole = isGather ? first : second
    const slice = isGather ? second : first
    const dtype = checkRooted(name, this, whole, slice, options)
    return this.operations.start({
      name,
      dtype,
      count: slice.buffer.length,
      input,
      output,
      peer: 0,
      reduction: isGather ? undefined : checkReduction(name, dtype, options),
      options,
    })
  }
}

function named<B extends Buffer | null>(name: string, buffer: B): { name: string; buffer: B } {
  return { name, buffer }
}
