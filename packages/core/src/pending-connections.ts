/** Number of connections to sample at the limit. Of these, one from the busiest network is dropped. */
const SAMPLE = 16

/**
 * Unauthenticated connections, by stage of the handshake. A connection competes only with others of
 * its stage, so silent connections cannot lock out those that make progress. At the limit, a random
 * connection of the older half is dropped, preferably from a busy network. A flood from one network
 * or many therefore cannot lock out a slow connection for good.
 */
export class PendingConnections<Connection> {
  readonly #limit: number
  readonly #drop: (connection: Connection) => void
  /** For each stage: the connections in order of entry, with their networks. */
  readonly #stages: Map<Connection, string>[] = []

  /**
   * @param options.limit - maximum number of connections in each stage
   * @param options.drop - closes a connection that was dropped at the limit, after its removal
   */
  constructor({ limit, drop }: { limit: number; drop: (connection: Connection) => void }) {
    this.#limit = limit
    this.#drop = drop
  }

  get size(): number {
    return this.#stages.reduce((sum, stage) => sum + stage.size, 0)
  }

  values(): Connection[] {
    return this.#stages.flatMap((stage) => [...stage.keys()])
  }

  /** Adds a connection from an IP address to stage 0. Another connection may be dropped. */
  add(connection: Connection, address: string): void {
    this.#enter(0, connection, networkOf(address))
  }

  /** Moves a connection to a later stage, by default the next. Ignores a connection that was removed. */
  advance(connection: Connection, to?: number): void {
    const from = this.#stages.findIndex((stage) => stage.has(connection))
    const stage = to ?? from + 1
    if (from < 0 || stage <= from) return
    const network = this.#stages[from]!.get(connection)!
    this.#stages[from]!.delete(connection)
    this.#enter(stage, connection, network)
  }

  /** Removes a connection. Returns whether it was present. */
  delete(connection: Connection): boolean {
    return this.#stages.some((stage) => stage.delete(connection))
  }

  #enter(number: number, connection: Connection, network: string): void {
    while (this.#stages.length <= number) this.#stages.push(new Map())
    const stage = this.#stages[number]!
    stage.set(connection, network)
    if (stage.size <= this.#limit) return
    const loser = loserOf(stage)
    stage.delete(loser)
    this.#drop(loser)
  }
}

function loserOf<Connection>(stage: ReadonlyMap<Connection, string>): Connection {
  const sizes = new Map<string, number>()
  for (const network of stage.values()) sizes.set(network, (sizes.get(network) ?? 0) + 1)
  const older = [...stage].slice(0, Math.ceil(stage.size / 2))
  const random = () => older[Math.floor(Math.random() * older.length)]!
  const sample = Array.from({ length: SAMPLE }, random)
  const [loser] = sample.reduce((a, b) => (sizes.get(b[1])! > sizes.get(a[1])! ? b : a))
  return loser
}

/** Returns the address, or for IPv6 its /64 network, because one host usually has all of it. */
function networkOf(address: string) {
  if (!address.includes(':') || address.includes('.')) return address
  const [start = '', end] = address.split('::')
  const groups = start.split(':')
  const missing = end === undefined ? 0 : 8 - groups.length - end.split(':').length
  return [...groups, ...Array<string>(missing).fill('0')].slice(0, 4).join(':')
}
