const COLLECTIVE = /^(allReduce|allGather|reduceScatter|broadcast|reduce|allToAll)(Sync)?$/
const MESSAGE = /^(i?send)(Sync)?$/

/**
 * What one rank sends on the groups of an axis.
 *
 * @typedef {object} Traffic
 * @property {number} collectives - on arrays
 * @property {number} bytes - of their larger sides
 * @property {number} messages
 * @property {number} sent - bytes of these
 */

/** @returns {Traffic} */
export function noTraffic() {
  return { collectives: 0, bytes: 0, messages: 0, sent: 0 }
}

/**
 * @param {readonly Traffic[]} all
 * @returns {Traffic}
 */
export function addTraffic(all) {
  const total = noTraffic()
  for (const each of all) {
    for (const key of /** @type {(keyof Traffic)[]} */ (Object.keys(total))) total[key] += each[key]
  }
  return total
}

/**
 * A group that counts what goes through it.
 *
 * @param {import('@tsrun/distributed').ProcessGroup} group
 * @param {Traffic} traffic
 * @returns {import('@tsrun/distributed').ProcessGroup}
 */
export function countingGroup(group, traffic) {
  return new Proxy(group, {
    get(target, key) {
      const value = Reflect.get(target, key, target)
      if (typeof value !== 'function') return value
      return (/** @type {unknown[]} */ ...args) => {
        if (target.size > 1 && typeof key === 'string') {
          const sizes = args.filter(ArrayBuffer.isView).map(({ byteLength }) => byteLength)
          if (COLLECTIVE.test(key)) {
            traffic.collectives++
            traffic.bytes += Math.max(...sizes)
          } else if (MESSAGE.test(key)) {
            traffic.messages++
            traffic.sent += Math.max(...sizes)
          }
        }
        return /** @type {(...args: unknown[]) => unknown} */ (value).apply(target, args)
      }
    },
  })
}
