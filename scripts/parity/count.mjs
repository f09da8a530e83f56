const COLLECTIVE = /^(allReduce|allGather|reduceScatter|broadcast|reduce|allToAll)(Sync)?$/

/**
 * A group that counts its collectives on arrays, and the bytes of their larger side.
 *
 * @param {import('@tsrun/distributed').ProcessGroup} group
 * @param {{ collectives: number, bytes: number }} traffic
 * @returns {import('@tsrun/distributed').ProcessGroup}
 */
export function countingGroup(group, traffic) {
  return new Proxy(group, {
    get(target, key) {
      const value = Reflect.get(target, key, target)
      if (typeof value !== 'function') return value
      return (/** @type {unknown[]} */ ...args) => {
        if (target.size > 1 && typeof key === 'string' && COLLECTIVE.test(key)) {
          const sizes = args.filter(ArrayBuffer.isView).map(({ byteLength }) => byteLength)
          traffic.collectives++
          traffic.bytes += Math.max(...sizes)
        }
        return /** @type {(...args: unknown[]) => unknown} */ (value).apply(target, args)
      }
    },
  })
}
