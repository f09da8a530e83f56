import { isTsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Scenario } from '../../support/exploration.ts'

/** Bytes of messages that wait for their receiver. */
const LARGE = 20_000
const together = [0, 0, 0]

function codeOf(end: PromiseSettledResult<unknown>): string {
  if (end.status === 'fulfilled') return 'none'
  if (!isTsrError(end.reason)) throw end.reason as Error
  return end.reason.code
}

/** Those that have ended well have this result. */
function expectRight(ends: readonly PromiseSettledResult<unknown>[], expected: unknown): void {
  for (const end of ends) if (end.status === 'fulfilled') expect(end.value).toEqual(expected)
}

const failed = /^(none|ERR_TSR_(PEER_LOST|PEER_FAILED|GROUP_FAILED|OPERATION_ABORTED))$/

async function sum(group: ProcessGroup, length: number, signal?: AbortSignal): Promise<number> {
  const buffer = new Float32Array(length).fill(group.rank + 1)
  await group.allReduce(buffer, signal && { signal })
  if (!buffer.every((value) => value === buffer[0])) throw new Error('a torn result')
  return buffer[0]!
}

/** What ranks do, by what is promised of it; see docs/protocol.md. */
export const explorations: Readonly<Record<string, () => Scenario>> = {
  'messages that are received in another order': () => messages(undefined),
  'the same within a host': () => messages([0, 0]),
  'large messages in both directions': () => ({
    size: 2,
    start: ({ groups }) =>
      groups.map(async (group) => {
        const received = new Float32Array(LARGE)
        const sent = group.send(new Float32Array(LARGE).fill(group.rank), 1 - group.rank)
        await group.recv(received, 1 - group.rank)
        await sent
        return new Set(received)
      }),
    check: ([a, b]) => {
      expect(a).toMatchObject({ value: new Set([1]) })
      expect(b).toMatchObject({ value: new Set([0]) })
    },
  }),
  'a small sum of three ranks': () => sums(3, undefined, 100),
  'a small sum within a host': () => sums(3, together, 100),
  'a large sum within a host': () => sums(2, [0, 0], LARGE),
  'calls that do not fit each other': () => mismatch(undefined),
  'the same mismatch within a host': () => mismatch([0, 0]),
  'a sum that a rank aborts': () => aborted(undefined),
  'a sum within a host that a rank aborts': () => aborted([0, 0]),
  'a rank that is lost': () => lost(undefined),
  'a rank that is lost within a host': () => lost(together),
  'the group of those that are left after a loss': () => ({
    size: 3,
    start: ({ groups }, signal) =>
      groups.slice(0, 2).map(async (group) => {
        const first: unknown = await sum(group, 10).catch((error: unknown) => error)
        if (!isTsrError(first)) throw new Error(`a sum without rank 2: ${String(first)}`)
        const left = await group.shrink({ signal })
        return { ranks: left.ranks, sum: await sum(left, 10) }
      }),
    events: [
      ({ ranks }) => {
        ranks[2]!.transport.close()
      },
    ],
    check: (ends) => {
      expect(ends.map(codeOf)).toEqual(['none', 'none'])
      expectRight(ends, { ranks: [0, 1], sum: 3 })
    },
  }),
}

function messages(hosts: readonly number[] | undefined): Scenario {
  return {
    size: 2,
    ...(hosts && { hosts }),
    start: ({ groups: [sender, receiver] }) => [
      (async () => {
        const works = [
          sender!.send(Float32Array.of(1, 2), 1, { tag: 1 }),
          sender!.send(new Float32Array(LARGE).fill(3), 1, { tag: 2 }),
          sender!.send(Float32Array.of(4), 1, { tag: 1 }),
        ]
        for (const work of works) await work
        return 'sent'
      })(),
      (async () => {
        const [large, small, last] = [LARGE, 2, 1].map((length) => new Float32Array(length))
        await receiver!.recv(large!, 0, { tag: 2 })
        await receiver!.recv(small!, 0, { tag: 1 })
        await receiver!.recv(last!, 0, { tag: 1 })
        return [new Set(large), [...small!], [...last!]]
      })(),
    ],
    check: ([sent, received]) => {
      expect(sent).toMatchObject({ value: 'sent' })
      expect(received).toMatchObject({ value: [new Set([3]), [1, 2], [4]] })
    },
  }
}

function sums(size: number, hosts: readonly number[] | undefined, length: number): Scenario {
  return {
    size,
    ...(hosts && { hosts }),
    start: ({ groups }) => groups.map((group) => sum(group, length)),
    check: (ends) => {
      expect(ends.map(codeOf)).toEqual(ends.map(() => 'none'))
      expectRight(ends, (size * (size + 1)) / 2)
    },
  }
}

function mismatch(hosts: readonly number[] | undefined): Scenario {
  return {
    size: 2,
    ...(hosts && { hosts }),
    start: ({ groups }) => groups.map((group) => sum(group, 10 + group.rank)),
    check: (ends) => {
      const codes = ends.map(codeOf)
      expect(codes).toContain('ERR_TSR_MISMATCH')
      for (const code of codes)
        expect(code).toMatch(/^ERR_TSR_(MISMATCH|PEER_FAILED|GROUP_FAILED)$/)
    },
  }
}

function aborted(hosts: readonly number[] | undefined): Scenario {
  const controller = new AbortController()
  return {
    size: 2,
    ...(hosts && { hosts }),
    start: ({ groups }) =>
      groups.map((group) => sum(group, LARGE, group.rank === 0 ? controller.signal : undefined)),
    events: [
      () => {
        controller.abort()
      },
    ],
    check: (ends) => {
      expectRight(ends, 3)
      for (const end of ends) expect(codeOf(end)).toMatch(failed)
    },
  }
}

function lost(hosts: readonly number[] | undefined): Scenario {
  return {
    size: 3,
    ...(hosts && { hosts }),
    start: ({ groups }) => {
      const running = groups.map((group) => sum(group, 100))
      running[2]!.catch(() => undefined)
      return running.slice(0, 2)
    },
    events: [
      ({ ranks }) => {
        ranks[2]!.transport.close()
      },
    ],
    check: (ends) => {
      expectRight(ends, 6)
      for (const end of ends) expect(codeOf(end)).toMatch(failed)
    },
  }
}
