import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import { partOfParameter, type Part, type Piece } from '../../checkpoint/piece.ts'
import type { Parameter, Shard } from '../../model/parameter.ts'
import type { OwnedRange } from './layout.ts'

/** Where the values of a shard are between two steps. */
export interface Home {
  /** A new tensor of them. */
  read(): Tensor
  /** Takes new ones; the tensor stays the caller's. */
  write(next: Tensor): void | Promise<void>
  /** Ends a step that brought no new ones; absent where nothing else has taken their place. */
  keep?(): Promise<void>
}

/**
 * This rank's part of a parameter, as an optimizer takes it: flat, under the parameter's own name. It
 * has no memory of its own: the tensor is made when somebody asks for it, and what takes its place
 * goes home at once.
 */
export class ShardParameter implements Parameter {
  readonly name: string
  readonly shape: readonly number[]
  /** That of the parameter, where it is a part of one itself. */
  readonly shard?: Shard
  readonly range: OwnedRange
  readonly #home: Home
  #value: Tensor | undefined
  #written: Promise<void>[] = []
  #isNew = false

  constructor(range: OwnedRange, home: Home) {
    this.name = range.parameter.name
    this.shape = [range.to - range.from]
    const { shape, shard } = range.parameter
    if (shard !== undefined && shard.shape.join() !== shape.join()) this.shard = shard
    this.range = range
    this.#home = home
  }

  get countedElsewhere(): boolean {
    return this.range.parameter.countedElsewhere === true
  }

  /** Whether it has got values since the last `settle`. */
  get isNew(): boolean {
    return this.#isNew
  }

  get value(): Tensor {
    this.#value ??= this.#home.read()
    return this.#value
  }

  /** Takes the tensor over. */
  set value(next: Tensor) {
    const written = this.#home.write(next)
    this.#value = undefined
    this.#isNew = true
    if (written === undefined) next.dispose()
    else
      this.#written.push(
        written.finally(() => {
          next.dispose()
        }),
      )
  }

  /** Ends a step: the values are home, whether they have changed or not. */
  async settle(): Promise<void> {
    if (!this.#isNew) await this.#home.keep?.()
    this.release()
    await Promise.all(this.#written)
    this.#written = []
    this.#isNew = false
  }

  /** Which values of the whole tensor these are. */
  get part(): Part {
    const { parameter, from, to } = this.range
    return partOfParameter(parameter, [from, to])
  }

  async piece(): Promise<Piece> {
    const values = new Float32Array(this.range.to - this.range.from)
    await writeTo(this.value, values)
    this.release()
    return { ...this.part, values }
  }

  load({ values }: Piece): void {
    this.value = tensorFrom(values as Float32Array, this.shape)
  }

  /** Frees the tensor that somebody has asked for. */
  release(): void {
    this.#value?.dispose()
    this.#value = undefined
  }
}
