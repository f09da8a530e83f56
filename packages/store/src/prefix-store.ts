import { checkKey, checkKeys } from './arguments.ts'
import type { Store } from './store.ts'

/**
 * A view of `store` in which every key and queue starts with `prefix`, which stays invisible:
 * several users of one store that cannot meet. Errors name the whole key; `close` closes `store`.
 *
 * @example
 * const rendezvous = prefixStore(store, 'rendezvous/0/')
 */
export function prefixStore(store: Store, prefix: string): Store {
  checkKey('prefix', prefix)
  const whole = (key: string): string => {
    checkKey('key', key)
    return prefix + key
  }
  const wholes = (keys: readonly string[]): string[] => {
    checkKeys(keys)
    return keys.map(whole)
  }
  return {
    set: async (key, value, options) => {
      await store.set(whole(key), value, options)
    },
    get: async (key, options) => await store.get(whole(key), options),
    wait: async (keys, options) => {
      await store.wait(wholes(keys), options)
    },
    check: async (keys) => await store.check(wholes(keys)),
    add: async (key, amount) => await store.add(whole(key), amount),
    compareSet: async (key, expected, desired) =>
      await store.compareSet(whole(key), expected, desired),
    append: async (key, value) => await store.append(whole(key), value),
    delete: async (key) => await store.delete(whole(key)),
    list: async (within = '') =>
      (await store.list(whole(within))).map((key) => key.slice(prefix.length)),
    queuePush: async (queue, value) => await store.queuePush(whole(queue), value),
    queuePop: async (queue, options) => await store.queuePop(whole(queue), options),
    queueLength: async (queue) => await store.queueLength(whole(queue)),
    watch: async (key, listener) =>
      await store.watch(whole(key), ({ value }) => {
        listener({ key, value })
      }),
    close: async () => {
      await store.close()
    },
  }
}
