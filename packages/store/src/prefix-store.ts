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
  const calls = store as unknown as Readonly<Record<string, (...args: unknown[]) => unknown>>
  /** Converts the first argument of a call. */
  const converted = <Name extends keyof Store>(
    name: Name,
    convert: (key: never) => unknown = fullKey,
  ): Store[Name] =>
    (async (key: never, ...rest: unknown[]) =>
      await calls[name]!(convert(key), ...rest)) as Store[Name]
  return {
    set: converted('set'),
    get: converted('get'),
    multiGet: converted('multiGet', fullKeys),
    wait: converted('wait', fullKeys),
    check: converted('check', fullKeys),
    add: converted('add'),
    compareSet: converted('compareSet'),
    append: converted('append'),
    delete: converted('delete'),
    list: async (within = '') =>
      (await store.list(fullKey(within))).map((key) => key.slice(prefix.length)),
    queuePush: converted('queuePush'),
    queuePop: converted('queuePop'),
    queueLength: converted('queueLength'),
    watch: async (key, listener) =>
      await store.watch(fullKey(key), ({ value }) => {
        listener({ key, value })
      }),
    close: async () => {
      await store.close()
    },
  }
}
