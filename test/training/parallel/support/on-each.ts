import { runWorld, type ProcessGroup } from '@tsrun/distributed'

/** What each rank makes of it, without a message. */
export async function onEach<T>(size: number, make: (group: ProcessGroup) => T): Promise<T[]> {
  return await runWorld({ size, seed: 1 }, (group) => Promise.resolve(make(group)))
}
