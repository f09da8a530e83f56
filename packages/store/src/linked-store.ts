import { amountRule, checkKeys, durationRule, keyRule, toBytes } from './arguments.ts'
import type { Calls } from './calls.ts'
import type { Store, StoreCallOptions, StoreEvent, StoreSetOptions } from './store.ts'

/** Implements `Store` over a link: checks the arguments and sends each call as a request. */
export class LinkedStore implements Store {
  readonly #calls: Calls

  constructor(calls: Calls) {
    this.#calls = calls
  }

  async set(
    key: string,
    value: Uint8Array | string,
    { timeToLive, whileConnected = false }: StoreSetOptions = {},
  ): Promise<void> {
    keyRule.check('key', key)
    await this.#calls.call({
      op: 'set',
      key,
      value: toBytes('value', value),
      ...(whileConnected && { whileConnected }),
      ...(timeToLive !== undefined && { timeToLive: durationRule.check('timeToLive', timeToLive) }),
    })
  }

  async get(key: string, options?: StoreCallOptions): Promise<Uint8Array> {
    keyRule.check('key', key)
    return copy(await this.#calls.wait({ op: 'get', key }, options))
  }

  async multiGet(keys: readonly string[], options?: StoreCallOptions): Promise<Uint8Array[]> {
    checkKeys(keys)
    const values = await this.#calls.wait({ op: 'multiGet', keys }, options)
    return values.map(copy)
  }

  async wait(keys: readonly string[], options?: StoreCallOptions): Promise<void> {
    checkKeys(keys)
    await this.#calls.wait({ op: 'wait', keys }, options)
  }

  async check(keys: readonly string[]): Promise<boolean> {
    checkKeys(keys)
    return await this.#calls.call({ op: 'check', keys })
  }

  async add(key: string, amount: number): Promise<number> {
    keyRule.check('key', key)
    amountRule.check('amount', amount)
    return await this.#calls.call({ op: 'add', key, amount })
  }

  async compareSet(
    key: string,
    expected: Uint8Array | string | undefined,
    desired: Uint8Array | string,
  ): Promise<{ success: boolean; value: Uint8Array | undefined }> {
    keyRule.check('key', key)
    const request = { op: 'compareSet', key, desired: toBytes('desired', desired) } as const
    const { success, value } = await this.#calls.call(
      expected === undefined ? request : { ...request, expected: toBytes('expected', expected) },
    )
    return { success, value: value && copy(value) }
  }

  async append(key: string, value: Uint8Array | string): Promise<number> {
    keyRule.check('key', key)
    return await this.#calls.call({ op: 'append', key, value: toBytes('value', value) })
  }

  async delete(key: string): Promise<boolean> {
    keyRule.check('key', key)
    return await this.#calls.call({ op: 'delete', key })
  }

  async list(prefix = ''): Promise<string[]> {
    keyRule.check('prefix', prefix)
    return await this.#calls.call({ op: 'list', key: prefix })
  }

  async queuePush(queue: string, value: Uint8Array | string): Promise<number> {
    keyRule.check('queue', queue)
    return await this.#calls.call({ op: 'queuePush', key: queue, value: toBytes('value', value) })
  }

  async queuePop(queue: string, options?: StoreCallOptions): Promise<Uint8Array> {
    keyRule.check('queue', queue)
    return copy(await this.#calls.wait({ op: 'queuePop', key: queue }, options))
  }

  async queueLength(queue: string): Promise<number> {
    keyRule.check('queue', queue)
    return await this.#calls.call({ op: 'queueLength', key: queue })
  }

  async watch(key: string, listener: (event: StoreEvent) => void): Promise<() => Promise<void>> {
    keyRule.check('key', key)
    return await this.#calls.watch(key, ({ value }) => {
      listener({ key, value: value && copy(value) })
    })
  }

  async close(): Promise<void> {
    await this.#calls.close()
  }
}

/** Copies received bytes, because they share memory with a frame or with the store. */
function copy(value: Uint8Array): Uint8Array {
  return new Uint8Array(value)
}
