import type { Store } from '@tsrun/store'
import fc from 'fast-check'
import { kinds, text, type Pair } from './stores.ts'

/** What the store should hold: the same operations on a Map. */
interface Model {
  readonly keys: Map<string, string>
  readonly queues: Map<string, string[]>
  /** Calls that wait, in the order they came. */
  readonly gets: { key: string; value: Promise<string | undefined>; expected?: string }[]
  readonly pops: { queue: string; value: Promise<string | undefined>; expected?: string }[]
}

type Command = fc.AsyncCommand<Model, Pair>

/** A command through either of the two stores. */
function command(
  name: string,
  first: boolean,
  check: (model: Model) => boolean,
  run: (model: Model, store: Store) => Promise<void>,
): Command {
  return {
    check,
    run: (model, pair) => run(model, first ? pair.one : pair.other),
    toString: () => `${first ? 'one' : 'other'}.${name}`,
  }
}

const always = (): boolean => true

/** Every write of a key releases those who wait for it. */
function write(model: Model, key: string, value: string): void {
  model.keys.set(key, value)
  for (const get of model.gets) if (get.key === key) get.expected ??= value
}

const keyOf = fc.constantFrom('a', 'b', 'a/b', '')
const valueOf = fc.oneof(fc.constantFrom('0', '41', '-3', '', 'x'), fc.string({ unit: 'grapheme' }))
const side = fc.boolean()

const commands: fc.Arbitrary<Command>[] = [
  fc.tuple(side, keyOf, valueOf).map(([first, key, value]) =>
    command(`set(${key}, ${value})`, first, always, async (model, store) => {
      await store.set(key, value)
      write(model, key, value)
    }),
  ),
  fc.tuple(side, keyOf).map(([first, key]) =>
    command(`get(${key})`, first, always, async (model, store) => {
      const expected = model.keys.get(key)
      const value = store.get(key, { timeout: 0 })
      if (expected === undefined) await expect(value).rejects.toMatchObject(timedOut)
      else expect(text(await value)).toBe(expected)
    }),
  ),
  fc.tuple(side, keyOf, fc.integer({ min: -5, max: 5 })).map(([first, key, amount]) =>
    command(`add(${key}, ${String(amount)})`, first, always, async (model, store) => {
      const before = model.keys.get(key) ?? '0'
      const sum = store.add(key, amount)
      if (/^-?\d{1,15}$/.test(before)) {
        const expected = Number(before) + amount
        expect(await sum).toBe(expected)
        write(model, key, String(expected))
      } else {
        await expect(sum).rejects.toMatchObject({ code: 'ERR_TSR_STORE_TYPE' })
      }
    }),
  ),
  fc
    .tuple(side, keyOf, fc.option(valueOf, { nil: undefined }), valueOf)
    .map(([first, key, expected, desired]) =>
      command(
        `compareSet(${key}, ${String(expected)}, ${desired})`,
        first,
        always,
        async (model, store) => {
          const before = model.keys.get(key)
          const { success, value } = await store.compareSet(key, expected, desired)
          expect(success).toBe(before === expected)
          if (before === expected) write(model, key, desired)
          expect(text(value)).toBe(model.keys.get(key))
        },
      ),
    ),
  fc.tuple(side, keyOf, valueOf).map(([first, key, value]) =>
    command(`append(${key}, ${value})`, first, always, async (model, store) => {
      const whole = (model.keys.get(key) ?? '') + value
      expect(await store.append(key, value)).toBe(Buffer.byteLength(whole))
      write(model, key, whole)
    }),
  ),
  fc.tuple(side, keyOf).map(([first, key]) =>
    command(`delete(${key})`, first, always, async (model, store) => {
      expect(await store.delete(key)).toBe(model.keys.delete(key))
    }),
  ),
  fc.tuple(side, keyOf).map(([first, prefix]) =>
    command(`list(${prefix})`, first, always, async (model, store) => {
      const expected = [...model.keys.keys()].filter((key) => key.startsWith(prefix)).sort()
      const listed = await store.list(prefix)
      expect(listed.filter((key) => key !== 'outside')).toEqual(expected)
    }),
  ),
  fc.tuple(side, fc.array(keyOf)).map(([first, keys]) =>
    command(`check(${keys.join()})`, first, always, async (model, store) => {
      expect(await store.check(keys)).toBe(keys.every((key) => model.keys.has(key)))
    }),
  ),
  fc.tuple(side, keyOf).map(([first, key]) =>
    command(
      `get(${key}) blocks`,
      first,
      (model) => !model.keys.has(key),
      async (model, store) => {
        model.gets.push({ key, value: store.get(key).then(text) })
        await store.check([])
      },
    ),
  ),
  fc.tuple(side, keyOf, valueOf).map(([first, queue, value]) =>
    command(`queuePush(${queue}, ${value})`, first, always, async (model, store) => {
      const length = await store.queuePush(queue, value)
      const waiting = model.pops.find((pop) => pop.queue === queue && pop.expected === undefined)
      const values = model.queues.get(queue) ?? []
      if (waiting === undefined) model.queues.set(queue, [...values, value])
      else waiting.expected = value
      expect(length).toBe(waiting === undefined ? values.length + 1 : 0)
    }),
  ),
  fc.tuple(side, keyOf).map(([first, queue]) =>
    command(`queuePop(${queue})`, first, always, async (model, store) => {
      const [expected, ...rest] = model.queues.get(queue) ?? []
      model.queues.set(queue, rest)
      const value = store.queuePop(queue, { timeout: 0 })
      if (expected === undefined) await expect(value).rejects.toMatchObject(timedOut)
      else expect(text(await value)).toBe(expected)
    }),
  ),
  fc.tuple(side, keyOf).map(([first, queue]) =>
    command(
      `queuePop(${queue}) blocks`,
      first,
      (model) => (model.queues.get(queue) ?? []).length === 0,
      async (model, store) => {
        model.pops.push({ queue, value: store.queuePop(queue).then(text) })
        await store.check([])
      },
    ),
  ),
  fc.tuple(side, keyOf).map(([first, queue]) =>
    command(`queueLength(${queue})`, first, always, async (model, store) => {
      expect(await store.queueLength(queue)).toBe((model.queues.get(queue) ?? []).length)
    }),
  ),
]

const timedOut = { code: 'ERR_TSR_STORE_TIMEOUT' }

describe.each(kinds)('%s', (_, open) => {
  it('behaves like a Map for keys and a list for queues', async () => {
    await fc.assert(
      fc.asyncProperty(fc.commands(commands, { size: '+1' }), async (sequence) => {
        const real = await open()
        const model: Model = { keys: new Map(), queues: new Map(), gets: [], pops: [] }
        await fc.asyncModelRun(() => ({ model, real }), sequence)
        await expectReleased(model)
        await real.close()
      }),
      { numRuns: 25 },
    )
  })
})

/** Those who waited have what came for them; the others still wait when the store closes. */
async function expectReleased({ gets, pops }: Model): Promise<void> {
  for (const { value, expected } of [...gets, ...pops]) {
    if (expected === undefined) value.catch(() => undefined)
    else expect(await value).toBe(expected)
  }
}
