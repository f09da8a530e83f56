import { checkKeys, keyRule } from './arguments.ts'
import type { Store } from './store.ts'

/**
 * Returns a view of `store` that prepends `prefix` to the name of every key and queue. Several users
 * can then share one store without seeing each other's keys. Errors name the full key. `close` closes
 * `store`.
 *
 * @example
 * const rendezvous = prefixStore(store, 'rendezvous/0/')
 */
export function prefixStore(store: Store, prefix: string): Store {
  keyRule.check('prefix', prefix)
  const fullKey = (key: string): string => prefix + keyRule.check('key', key)
  const fullKeys = (keys: readonly string[]): string[] => checkKeys(keys).map(fullKey)
  return {
    set: async (key, value, options) => {
      await store.set(fullKey(key), value, options)
    },
    get: async (key, options) => await store.get(fullKey(key), options),
    multiGet: async (keys, options) => await store.multiGet(fullKeys(keys), options),
    wait: async (keys, options) => {
      await store.wait(fullKeys(keys), options)
    },
    check: async (keys) => await store.check(fullKeys(keys)),
    add: async (key, amount) => await store.add(fullKey(key), amount),
    compareSet: async (key, expected, desired) =>
      await store.compareSet(fullKey(key), expected, desired),
    append: async (key, value) => await store.append(fullKey(key), value),
    delete: async (key) => await store.delete(fullKey(key)),
    list: async (within = '') =>
      (await store.list(fullKey(within))).map((key) => key.slice(prefix.length)),
    queuePush: async (queue, value) => await store.queuePush(fullKey(queue), value),
    queuePop: async (queue, options) => await store.queuePop(fullKey(queue), options),
    queueLength: async (queue) => await store.queueLength(fullKey(queue)),
    watch: async (key, listener) =>
      await store.watch(fullKey(key), ({ value }) => {
        listener({ key, value })
      }),
    close: async () => {
      await store.close()
    },
  }
}
