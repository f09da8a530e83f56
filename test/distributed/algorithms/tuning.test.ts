import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SteppedWorld } from '../support/stepped-world.ts'
import { chooseAlgorithm } from '../../internals/distributed/algorithms.ts'
import { checkSameTuning, readTuning } from '../../internals/distributed/groups.ts'

const folder = mkdtempSync(join(tmpdir(), 'tsrun-tuning-'))
afterAll(() => {
  rmSync(folder, { recursive: true })
})

let files = 0

function fileOf(content: unknown): string {
  const path = join(folder, `${files++}.json`)
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content))
  return path
}

const ring = { algorithm: 'ring' }

describe('a tuning file', () => {
  it('replaces only the thresholds that it names, per medium', () => {
    const path = fileOf({
      version: 1,
      about: { machine: 'a laptop' },
      sockets: { allGather: [{ upTo: 100, algorithm: 'bruck' }, ring] },
      sharedMemory: { allGather: [{ algorithm: 'bruck' }] },
    })
    const { table, source } = readTuning(path)
    const choose = (bytes: number, layout: 'apart' | 'together'): string =>
      chooseAlgorithm('allGather', { bytes, layout }, table)
    expect([0, 100, 101, 1e9].map((bytes) => choose(bytes, 'apart'))).toEqual([
      ...['bruck', 'bruck', 'ring', 'ring'],
    ])
    expect(choose(1e9, 'together')).toBe('bruck')
    expect(table.sockets.broadcast).toEqual(readTuning(undefined).table.sockets.broadcast)
    expect(source).toBe(path)
  })

  it('tunes coalesced all-reduces like plain ones, unless it names them', () => {
    const { table } = readTuning(fileOf({ version: 1, sockets: { allReduce: [ring] } }))
    expect(table.sockets.allReduceCoalesced).toEqual([{ ...ring, upTo: Infinity }])
  })

  it.each([
    ['{', 'JSON'],
    [[], 'expected an object with "version": 1, and objects named sockets, sharedMemory'],
    [{}, 'with "version": 1'],
    [{ version: 2 }, 'with "version": 1'],
    [{ version: 1, tcp: {} }, 'objects named sockets, sharedMemory'],
    [{ version: 1, sockets: [] }, 'objects named sockets, sharedMemory'],
    [{ version: 1, sockets: { allSum: [ring] } }, 'there is no operation "allSum"'],
    [{ version: 1, sockets: { allReduce: [] } }, '"allReduce": expected a list of'],
    [{ version: 1, sockets: { allReduce: ['ring'] } }, '"allReduce": expected a list of'],
    [
      { version: 1, sockets: { allGather: [{ algorithm: 'linear' }] } },
      '"allGather": expected a list of { "upTo": bytes, "algorithm": name }, by ascending bytes and the last without "upTo"; the algorithms are ring, bruck, direct',
    ],
    [{ version: 1, sockets: { allReduce: [{ ...ring, upTo: 4096 }] } }, 'the last without "upTo"'],
    [{ version: 1, sockets: { allReduce: [ring, ring] } }, 'by ascending bytes'],
    [
      { version: 1, sockets: { allReduce: [{ ...ring, upTo: 8 }, { ...ring, upTo: 8 }, ring] } },
      'by ascending bytes',
    ],
    [
      { version: 1, sockets: { allReduce: [{ ...ring, upTo: '4KiB' }, ring] } },
      'by ascending bytes',
    ],
  ])('is refused with the content %j', (content, problem) => {
    const path = fileOf(content)
    expect(() => readTuning(path)).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_TUNING',
        message: expect.stringContaining(problem),
        facts: expect.objectContaining({ path }),
      }),
    )
  })

  it('is refused if it is missing', () => {
    const path = join(folder, 'nowhere.json')
    expect(() => readTuning(path)).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_TUNING',
        message: expect.stringContaining('ENOENT'),
      }),
    )
  })
})

describe('the tunings of a job', () => {
  const builtIn = readTuning('')
  const other = readTuning(fileOf({ version: 1, sockets: { allReduce: [ring] } }))

  it('are equal if their content is equal, whatever file it came from', () => {
    const empty = readTuning(fileOf({ version: 1 }))
    expect(() => {
      checkSameTuning(1, [builtIn, empty])
    }).not.toThrow()
  })

  it('are refused on every rank if they differ', () => {
    for (const [rank, peer] of [
      [0, 1],
      [1, 0],
    ] as const) {
      expect(() => {
        checkSameTuning(rank, [builtIn, other])
      }).toThrow(
        expect.objectContaining({
          code: 'ERR_TSR_TUNING_DIFFERS',
          facts: expect.objectContaining({ rank, peer }),
        }),
      )
    }
  })
})

describe('a hierarchical all-reduce', () => {
  /** Frames that each owner of a chunk has sent to those of the other hosts. */
  async function framesBetween(algorithm: string, below?: number): Promise<number[]> {
    const thresholds = below === undefined ? [] : [{ upTo: below, algorithm: 'ring' }]
    const path = fileOf({ version: 1, sockets: { allReduce: [...thresholds, { algorithm }] } })
    const hosts = [0, 0, 1, 1, 2, 2]
    const world = new SteppedWorld(6, { hosts, tuning: readTuning(path).table })
    const buffers = world.groups.map(({ rank }) => new Float32Array(1000).fill(rank))
    await world.finish(world.groups.map((group, rank) => group.allReduce(buffers[rank]!)))
    for (const buffer of buffers) expect(buffer.every((sum) => sum === 15)).toBe(true)
    return world.ranks.flatMap(({ engine }, rank) =>
      hosts.flatMap((host, peer) =>
        host !== hosts[rank] && rank % 2 === peer % 2
          ? [engine.links[peer]!.traffic.framesSent]
          : [],
      ),
    )
  }

  it('uses the tuning also for its step between hosts', async () => {
    // A chunk to each of the others, then the sum of the own chunk.
    expect(await framesBetween('direct')).toEqual(Array.from({ length: 12 }, () => 2))
    expect(await framesBetween('ring')).not.toEqual(Array.from({ length: 12 }, () => 2))
  })

  it('uses the size of the whole buffer to choose the algorithm between hosts', async () => {
    // 4000 bytes; each of the two owners has half.
    expect(await framesBetween('direct', 3999)).toEqual(await framesBetween('direct'))
    expect(await framesBetween('direct', 4000)).toEqual(await framesBetween('ring'))
  })

  it('that is tuned to use itself between hosts does not recurse forever', async () => {
    await framesBetween('hierarchical')
  })
})
