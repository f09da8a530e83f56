/**
 * A layout of training that is compared with a single process. Sizes that are left out are 1.
 *
 * @typedef {object} Configuration
 * @property {string} name
 * @property {number} [dp] - replicas, each with a part of the batch
 * @property {number} [shard] - ranks that shard the state of a replica; each trains on a part of its batch
 * @property {1 | 2 | 3} [zero] - what they shard: the stage of `fullyShard`
 * @property {number} [pp] - stages of a pipeline
 * @property {string} [schedule] - of the pipeline; default 1f1b
 * @property {number} [microbatches] - default 4
 * @property {number} [chunks] - stages per rank, for interleaved schedules
 * @property {boolean} [recompute] - activations are recomputed before each backward
 * @property {number} [tp] - ranks that share every layer
 * @property {boolean} [sequence] - these ranks also share the sequences between the layers
 * @property {number} [cp] - ranks that each have a part of every sequence
 * @property {boolean} [tied] - embedding and head share their table
 * @property {boolean} [deterministic] - default true, which implies the math `exact`
 * @property {string} [bitwise] - an earlier layout whose parameters are bitwise identical
 * @property {readonly ModelName[]} [models] - default: all
 *
 * @typedef {'mlp' | 'gpt'} ModelName
 * @typedef {'exact' | 'fast' | null} MathMode - how wasm computes products; null for other backends
 */

/**
 * To compare another layout with the single process, add a line.
 *
 * @type {readonly Configuration[]}
 */
export const configurations = [
  { name: 'single' },
  { name: 'dp2', dp: 2 },
  { name: 'dp4', dp: 4 },
  { name: 'zero1', shard: 2, zero: 1, bitwise: 'dp2' },
  { name: 'zero2', shard: 2, zero: 2, bitwise: 'dp2' },
  { name: 'zero3', shard: 2, zero: 3, bitwise: 'dp2' },
  { name: 'zero1 x4', shard: 4, zero: 1, bitwise: 'dp4' },
  { name: 'zero2 x4', shard: 4, zero: 2, bitwise: 'dp4' },
  { name: 'zero3 x4', shard: 4, zero: 3, bitwise: 'dp4' },
  { name: 'hsdp 2x2', dp: 2, shard: 2, zero: 3 },
  { name: 'tp2', tp: 2 },
  { name: 'tp4', tp: 4 },
  { name: 'sp2', tp: 2, sequence: true, models: ['gpt'] },
  { name: 'sp4', tp: 4, sequence: true, models: ['gpt'] },
  { name: 'cp2', cp: 2, models: ['gpt'] },
  { name: 'cp4', cp: 4, models: ['gpt'] },
  { name: 'pp2 naive', pp: 2, schedule: 'naive' },
  { name: 'pp2 gpipe', pp: 2, schedule: 'gpipe', bitwise: 'pp2 naive' },
  { name: 'pp2 1f1b', pp: 2, schedule: '1f1b', bitwise: 'pp2 naive' },
  { name: 'pp2 interleaved', pp: 2, schedule: 'interleaved', chunks: 2, bitwise: 'pp2 naive' },
  { name: 'pp2 zb-h1', pp: 2, schedule: 'zb-h1', bitwise: 'pp2 naive' },
  { name: 'pp2 looped', pp: 2, schedule: 'looped', chunks: 2, bitwise: 'pp2 naive' },
  { name: 'pp2 1f1b recompute', pp: 2, recompute: true, bitwise: 'pp2 naive' },
  { name: 'pp4 naive', pp: 4, schedule: 'naive', bitwise: 'pp2 naive' },
  { name: 'pp4 gpipe', pp: 4, schedule: 'gpipe', bitwise: 'pp2 naive' },
  { name: 'pp4 1f1b', pp: 4, schedule: '1f1b', bitwise: 'pp2 naive' },
  {
    name: 'pp4 interleaved',
    pp: 4,
    schedule: 'interleaved',
    chunks: 2,
    bitwise: 'pp2 naive',
    models: ['mlp'],
  },
  {
    name: 'pp4 looped',
    pp: 4,
    schedule: 'looped',
    chunks: 2,
    bitwise: 'pp2 naive',
    models: ['mlp'],
  },
  { name: 'pp4 zb-h1', pp: 4, schedule: 'zb-h1', bitwise: 'pp2 naive' },
  { name: 'pp2 1f1b m1', pp: 2, microbatches: 1 },
  { name: 'pp2 1f1b m2', pp: 2, microbatches: 2 },
  { name: 'pp2 1f1b m8', pp: 2, microbatches: 8 },
  ...['interleaved-zb', 'zb-v', 'dualpipe-v'].flatMap((schedule) => [
    { name: `pp2 ${schedule}`, pp: 2, schedule, chunks: 2, bitwise: 'pp2 naive' },
    {
      name: `pp4 ${schedule}`,
      pp: 4,
      schedule,
      chunks: 2,
      microbatches: 8,
      bitwise: 'pp2 1f1b m8',
      models: ['mlp'],
    },
  ]),
  { name: 'dp2 pp2', dp: 2, pp: 2 },
  { name: 'dp2 tp2', dp: 2, tp: 2 },
  { name: 'pp2 tp2', pp: 2, tp: 2 },
  { name: 'zero1 pp2', shard: 2, zero: 1, pp: 2 },
  { name: 'zero2 tp2', shard: 2, zero: 2, tp: 2 },
  { name: 'zero3 tp2', shard: 2, zero: 3, tp: 2 },
  { name: 'dp2 pp2 tp2', dp: 2, pp: 2, tp: 2 },
  { name: 'dp2 pp2 sp2', dp: 2, pp: 2, tp: 2, sequence: true, models: ['gpt'] },
  { name: 'dp2 cp2', dp: 2, cp: 2, models: ['gpt'] },
  { name: 'dp2 cp2 tp2', dp: 2, cp: 2, tp: 2, models: ['gpt'] },
  { name: 'cp2 pp2 tp2', cp: 2, pp: 2, tp: 2, models: ['gpt'] },
  { name: 'hsdp 2x2 tp2', dp: 2, shard: 2, zero: 3, tp: 2 },
  { name: 'zero3 cp2', shard: 2, zero: 3, cp: 2, models: ['gpt'] },
  { name: 'tied zero3', shard: 2, zero: 3, tied: true, models: ['gpt'] },
  { name: 'tied pp4', pp: 4, schedule: '1f1b', tied: true, models: ['gpt'] },
  { name: 'tied zero1 pp2', shard: 2, zero: 1, pp: 2, tied: true, models: ['gpt'] },
  { name: 'tied zero3 pp2', shard: 2, zero: 3, pp: 2, tied: true, models: ['gpt'] },
  { name: 'tied dp2 pp2 tp2', dp: 2, pp: 2, tp: 2, tied: true, models: ['gpt'] },
]

/** @param {Configuration} configuration */
export function ranksOf({ dp = 1, shard = 1, pp = 1, cp = 1, tp = 1 }) {
  return dp * shard * pp * cp * tp
}
