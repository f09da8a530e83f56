import type { Store } from '@tsrun/store'
import type { World } from './world.ts'

const folder = 'alive/'

export function presenceKey(rank: number): string {
  return `${folder}${rank}`
}

/** Says in the store that this rank lives; the store notices when it does not any more. */
export async function announcePresence(store: Store, rank: number): Promise<void> {
  await store.set(presenceKey(rank), String(process.pid), { whileConnected: true })
}

export async function endPresence(store: Store, rank: number): Promise<void> {
  await store.delete(presenceKey(rank))
}

/** Tells which ranks of the world live, as far as the store knows. */
export async function present({ store, hasPresence }: World): Promise<(rank: number) => boolean> {
  if (hasPresence !== true) return () => true
  const alive = new Set(await store.list(folder))
  return (rank) => alive.has(presenceKey(rank))
}
