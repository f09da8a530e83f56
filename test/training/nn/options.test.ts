import { GPT, gpt } from '@tsrun/models'
import {
  BatchNorm,
  Block,
  CausalSelfAttention,
  createParameter,
  Embedding,
  FeedForward,
  init,
  inPass,
  LayerNorm,
  Linear,
  loadBackend,
  RMSNorm,
  ShardedMLP,
  shardedMLP,
  tf,
} from '@tsrun/training'

beforeAll(() => loadBackend('cpu'))

/** Without types, as in a program of JavaScript. */
const given = (options: unknown) => options as never

it.each<[() => unknown, RegExp]>([
  [
    () => gpt(given({ n_layer: 2 })),
    /options is an object with the unknown key "n_layer"; expected only vocab/,
  ],
  [() => gpt(given({ layers: 2, dropout: 0.1 })), /the unknown key "dropout"/],
  [() => new GPT(given({ dim: 3 })), /the unknown key "dim"/],
  [() => gpt(given('small')), /options is "small"; expected an object with vocabulary/],
  [() => gpt({ tied: given('no') }).build(), /tied is "no"; expected true or false/],
  [() => gpt({ seed: Number.NaN }).build(), /seed is NaN; expected a number/],
  [() => gpt({ width: given('8') }).build(), /width is "8"; expected a whole number from 1/],
  [() => shardedMLP(given({ hiden: 3 })), /the unknown key "hiden"; expected .* inputs, hidden, /],
  [() => new ShardedMLP(given({ width: 3 })), /the unknown key "width"/],
  [() => new ShardedMLP({ seed: given('x') }), /seed is "x"/],
  [() => new Linear(given(6)), /options is 6; expected an object with name, inputs, outputs, /],
  [
    () => new Linear(given({ inputs: 6, outputs: 4 })),
    /name is undefined; expected the prefix of the names/,
  ],
  [
    () => new Linear(given({ name: 'a', outputs: 4 })),
    /inputs is undefined; expected a whole number from 1/,
  ],
  [() => new Linear({ name: 'a', inputs: 6, outputs: 0 }), /outputs is 0/],
  [
    () => new Linear(given({ name: 'a', inputs: 6, outputs: 4, bias: 'no' })),
    /bias is "no"; expected true or false/,
  ],
  [() => init.normal(given(undefined)), /the deviation of init.normal is undefined/],
  [() => init.normal(NaN), /the deviation of init.normal is NaN; expected a number >= 0/],
  [() => init.uniform(given(undefined)), /the limit of init.uniform is undefined/],
  [() => init.uniform(Infinity), /the limit of init.uniform is Infinity/],
  [() => init.constant(given(undefined)), /the value of init.constant is undefined/],
  [() => createParameter('w', [2], Float32Array.of(1, NaN)), /values of w is NaN at index 1/],
  [() => createParameter('w', [1], () => Float32Array.of(NaN)), /values of w is NaN at index 0/],
  [
    () => new Linear({ name: 'a', inputs: 6, outputs: 4, activation: given('gleu') }),
    /activation is "gleu"; expected one of "linear", "relu", "gelu", .* "sigmoid"/,
  ],
  [() => createParameter('w', [2], given([1, 2])), /values of w is .*; expected a Float32Array/],
  [
    () => createParameter('w', [2, 2], given(init.heUniform)),
    /values of w is .*; expected a Float32Array, from a function such as init\.heUniform\(\)/,
  ],
  [() => new LayerNorm({ name: 'n', width: 4, epsilon: NaN }), /epsilon is NaN/],
  [() => new RMSNorm({ name: 'n', width: 4, epsilon: -1 }), /epsilon is -1/],
  [() => new RMSNorm(given({ name: 'n', width: 4, epsilom: 1 })), /mean epsilon/],
  [() => new Embedding(given({ name: 'e', count: 4, width: 2, deviatoin: 1 })), /mean deviation/],
  [
    () => new CausalSelfAttention(given({ name: 'a', width: 4, heads: 2, attentoinDropout: 1 })),
    /mean attentionDropout/,
  ],
  [() => new FeedForward(given({ name: 'f', width: 4, hiden: 1 })), /mean hidden/],
  [
    () => new Block(given({ name: 'b', width: 4, heads: 2, residualDropuot: 0.1 })),
    /mean residualDropout/,
  ],
])('models and modules refuse unknown and invalid options', (make, message) => {
  expect(make).toThrow(expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }))
  expect(make).toThrow(message)
})

it.each([
  ['BatchNorm', () => new BatchNorm({ name: 'n', channels: 2 })],
  ['LayerNorm', () => new LayerNorm({ name: 'n', width: 2 })],
  ['RMSNorm', () => new RMSNorm({ name: 'n', width: 2 })],
])('a %s refuses inputs of another width or dtype', (_, make) => {
  const norm = make()
  for (const x of [tf.ones([4, 4]), tf.ones([4, 2], 'int32'), tf.ones([4, 1])]) {
    for (const training of [true, false]) {
      expect(() => inPass({ training, step: 0 }, () => norm.forward(x))).toThrow(
        /the input of n\.weight is a tensor of shape \[4, .*; expected float32 \[\.\.\., 2\]/,
      )
    }
  }
})
