import { amountRule, checkKeys, durationRule, keyRule, toBytes } from './arguments.ts'
import type { Calls } from './calls.ts'
import type { Store } from './store.ts'

/** Implements `Store` over a link: checks the arguments and sends each call as a request. */
export function linkedStore(calls: Calls): Store {
  return {
    set: async (key, value, { timeToLive, whileConnected = false } = {}) => {
      keyRule.check('key', key)
      await calls.call({
        op: 'set',
        key,
        value: toBytes('value', value),
        ...(whileConnected && { whileConnected }),
        ...(timeToLive !== undefined && {
          timeToLive: durationRule.check('timeToLive', timeToLive),
        }),
      })
    },
    get: async (key, options) => {
      keyRule.check('key', key)
      return copy(await calls.wait({ op: 'get', key }, options))
    },
    multiGet: async (keys, options) => {
      checkKeys(keys)
      const values = await calls.wait({ op: 'multiGet', keys }, options)
      return values.map(copy)
    },
    wait: async (keys, options) => {
      checkKeys(keys)
      await calls.wait({ op: 'wait', keys }, options)
    },
    check: async (keys) => {
      checkKeys(keys)
      return await calls.call({ op: 'check', keys })
    },
    add: async (key, amount) => {
      keyRule.check('key', key)
      amountRule.check('amount', amount)
      return await calls.call({ op: 'add', key, amount })
    },
    compareSet: async (key, expected, desired) => {
      keyRule.check('key', key)
      const request = { op: 'compareSet', key, desired: toBytes('desired', desired) } as const
      const { success, value } = await calls.call(
        expected === undefined ? request : { ...request, expected: toBytes('expected', expected) },
      )
      return { success, value: value && copy(value) }
    },
    append: async (key, value) => {
      keyRule.check('key', key)
      return await calls.call({ op: 'append', key, value: toBytes('value', value) })
    },
    delete: async (key) => {
      keyRule.check('key', key)
      return await calls.call({ op: 'delete', key })
    },
    list: async (prefix = '') => {
      keyRule.check('prefix', prefix)
      return await calls.call({ op: 'list', key: prefix })
    },
    queuePush: async (queue, value) => {
      keyRule.check('queue', queue)
      return await calls.call({ op: 'queuePush', key: queue, value: toBytes('value', value) })
    },
    queuePop: async (queue, options) => {
      keyRule.check('queue', queue)
      return copy(await calls.wait({ op: 'queuePop', key: queue }, options))
    },
    queueLength: async (queue) => {
      keyRule.check('queue', queue)
      return await calls.call({ op: 'queueLength', key: queue })
    },
    watch: async (key, listener) => {
      keyRule.check('key', key)
      return await calls.watch(key, ({ value }) => {
        listener({ key, value: value && copy(value) })
      })
    },
    close: async () => {
      await calls.close()
    },
  }
}

/** Copies received bytes, because they share memory with a frame or with the store. */
function copy(value: Uint8Array): Uint8Array {
  return new Uint8Array(value)
}
