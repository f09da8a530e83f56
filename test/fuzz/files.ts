import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { readExamples } from '@tsrun/data'
import { parseActions } from '@tsrun/training/planning'
import { openModelFiles } from '@tsrun/training/parts'
import { readTuning } from '../internals/distributed/groups.ts'
import { decodeContents, encodeContents, parseHeader } from '../internals/training.ts'
import { readGPT2Config } from '../internals/models.ts'
import { summarizeTrace, writeChromeTrace } from '@tsrun/observe'
import { SpanRecorder } from '@tsrun/distributed/record'
import { openSpanFile, sendSpansTo } from '../internals/distributed/record.ts'
import { SpanFileReader } from '../internals/observe.ts'
import { type Target } from './campaign.ts'
import { fileOf, folder, json, textOf } from './inputs.ts'

const contents = {
  ...{ save: 1, step: 2, ranks: 2, hasOptimizer: true, data: { at: 3 } },
  files: { 'rank-0.safetensors': 100 },
  tensors: {
    w: {
      ...{ dtype: 'F32', shape: [4, 2] },
      pieces: [
        {
          ...{ file: 'rank-0.safetensors', key: 'w', crc32: 5 },
          box: { offset: [0, 0], extent: [2, 2] },
          range: [0, 4],
        },
      ],
    },
  },
}

/** The spans of a step, as a rank writes them. */
function spans(): Buffer {
  const path = join(folder, 'seed.spans')
  const place = { rank: 1, worldSize: 2, node: 0, host: 'h', pid: 7 }
  const file = openSpanFile(
    path,
    { runId: 'r', restartCount: 0, ...place, monotonic: 0, time: 5 },
    () => undefined,
  )
  const message = { peer: 0, tag: 3, group: 0, sequence: 1, bytes: 64, waited: 1 }
  sendSpansTo(file)
  const recorder = new SpanRecorder({ rank: 1 })
  recorder.record('F', 1, 2, { stage: 1, microbatch: 0 })
  recorder.record('recv', 2, 5, { name: 'gradient', ...message })
  recorder.record('wait', 2, 5, { name: 'gradient', waited: 2 })
  recorder.record('B', 5, 9, { stage: 1, microbatch: 0 })
  recorder.record('collective', 9, 10, { group: 0, sequence: 4, joint: 1, noticed: 0.1 })
  recorder.record('step', 0, 11, { step: 1 })
  sendSpansTo(undefined)
  file.flush()
  file.close()
  return readFileSync(path)
}

const depth = 20_000
const rules = { inputs: ['x', 'y'], labels: { from: 'z', classes: ['a', 'b'] } }

/** Files that others have written. */
export const fileTargets: readonly Target[] = [
  {
    name: 'spans',
    seeds: [spans()],
    run: (input) => {
      const files = [new SpanFileReader(fileOf('rank.spans', input))]
      summarizeTrace({ runId: 'r', files, problems: [], lastAttempt: 0 })
      writeChromeTrace(files, join(folder, 'trace.json'))
    },
  },
  {
    name: 'checkpoint-index',
    seeds: [json(contents)],
    isJson: true,
    // with the right checksum: what is checked behind it matters
    encode: (value) =>
      Buffer.from(
        typeof value === 'object' && value !== null ? encodeContents(value as never) : json(value),
      ),
    run: (input) => decodeContents(textOf(input)),
  },
  {
    name: 'safetensors-header',
    seeds: [
      json({
        __metadata__: { a: 'b' },
        w: { dtype: 'F32', shape: [2, 2], data_offsets: [0, 16] },
        b: { dtype: 'BF16', shape: [2], data_offsets: [16, 20] },
      }),
    ],
    isJson: true,
    run: (input) => parseHeader(input, 20),
  },
  {
    name: 'hub-index',
    seeds: [json({ metadata: { total_size: 20 }, weight_map: { w: 'model-1.safetensors' } })],
    isJson: true,
    run: async (input) => {
      fileOf('model.safetensors.index.json', input)
      await openModelFiles(folder)
    },
  },
  {
    name: 'gpt2-config',
    seeds: [json({ vocab_size: 100, n_positions: 32, n_embd: 8, n_layer: 2, n_head: 2 })],
    isJson: true,
    run: (input) => {
      fileOf('config.json', input)
      readGPT2Config(folder)
    },
  },
  {
    name: 'tuning-file',
    seeds: [
      json({
        version: 1,
        sockets: { allGather: [{ upTo: 65_536, algorithm: 'bruck' }, { algorithm: 'ring' }] },
        sharedMemory: { allGather: [{ algorithm: 'direct' }] },
      }),
    ],
    isJson: true,
    run: (input) => readTuning(fileOf('tuning.json', input)),
  },
  {
    name: 'jsonl',
    seeds: [
      json({ x: 1, y: [2, 3], z: 'a' }),
      '{"x":1,"y":2,"z":"a"}\n\n{"x":3,"y":-0.5e3,"z":"b"}\n',
      'null\n',
      `{"x":${'['.repeat(depth)}1${']'.repeat(depth)},"y":1,"z":"a"}\n`,
    ],
    run: (input) => readExamples(fileOf('data.jsonl', input), rules),
  },
  {
    name: 'csv',
    seeds: [
      'x,y,z\n1,2,a\n3,4.5,b\n',
      '\ufeffx;y,z\r\n"1","2",a\r\n',
      `x,y,z\n1,"${'2'.repeat(1e5)}",a\n`,
    ],
    run: (input) => readExamples(fileOf('data.csv', input), rules),
  },
  {
    name: 'schedule-file',
    seeds: ['0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n', '0F0,,0I0,0W0'],
    run: (input) => parseActions(textOf(input)),
  },
]
