import { amountRule, checkKeys, durationRule, keyRule, toBytes } from './arguments.ts'
import type { Calls } from './calls.ts'
import type { Store } from './store.ts'

/** Implements `Store` over a link: checks the arguments and sends each call as a request. */
export function linkedStore(calls: Calls): Store {
  const checked = (key: string, name = 'key'): string => keyRule.check(name, key)
  return {
    set: async (key, value, { timeToLive, whileConnected = false } = {}) => {
      await calls.call({
        op: 'set',
        key: checked(key),
        value: toBytes('value', value),
        ...(whileConnected && { whileConnected }),
        ...(timeToLive !== undefined && {
          timeToLive: durationRule.check('timeToLive', timeToLive),
        }),
      })
    },
    get: async (key, options) => copy(await calls.wait({ op: 'get', key: checked(key) }, options)),
    multiGet: async (keys, options) => {
      const values = await calls.wait({ op: 'multiGet', keys: checkKeys(keys) }, options)
      return values.map(copy)
    },
    wait: async (keys, options) => {
      await calls.wait({ op: 'wait', keys: checkKeys(keys) }, options)
    },
    check: async (keys) => await calls.call({ op: 'check', keys: checkKeys(keys) }),
    add: async (key, amount) =>
      await calls.call({
        op: 'add',
        key: checked(key),
        amount: amountRule.check('amount', amount),
      }),
    compareSet: async (key, expected, desired) => {
      const { success, value } = await calls.call({
        op: 'compareSet',
        key: checked(key),
        desired: toBytes('desired', desired),
        ...(expected !== undefined && { expected: toBytes('expected', expected) }),
      })
      return { success, value: value && copy(value) }
    },
    append: async (key, value) =>
      await calls.call({ op: 'append', key: checked(key), value: toBytes('value', value) }),
    delete: async (key) => await calls.call({ op: 'delete', key: checked(key) }),
    list: async (prefix = '') => await calls.call({ op: 'list', key: checked(prefix, 'prefix') }),
    queuePush: async (queue, value) =>
      await calls.call({
        op: 'queuePush',
        key: checked(queue, 'queue'),
        value: toBytes('value', value),
      }),
    queuePop: async (queue, options) =>
      copy(await calls.wait({ op: 'queuePop', key: checked(queue, 'queue') }, options)),
    queueLength: async (queue) =>
      await calls.call({ op: 'queueLength', key: checked(queue, 'queue') }),
    watch: async (key, listener) =>
      await calls.watch(checked(key), ({ value }) => {
        listener({ key, value: value && copy(value) })
      }),
    close: async () => {
      await calls.close()
    },
  }
}

/** Copies received bytes, because they share memory with a frame or with the store. */
function copy(value: Uint8Array): Uint8Array {
  return new Uint8Array(value)
}
