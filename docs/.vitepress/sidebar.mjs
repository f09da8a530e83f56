// The order of the pages on the site: all of docs/, and what belongs to them. An entry is a file of the
// repository, with a title where its heading is too long or it has none.

/**
 * @typedef {string | readonly [path: string, title: string]} Entry
 * @typedef {{ readonly text: string, readonly open?: boolean, readonly items: readonly Entry[] }} Section
 */

/** @type {readonly Section[]} */
export const sidebar = [
  {
    text: 'Getting started',
    open: true,
    items: [
      ['README.md', 'Getting started'],
      ['docs/torch.md', 'From torch'],
      ['docs/jax.md', 'From JAX'],
      ['docs/comparison.md', 'Comparison'],
    ],
  },
  {
    text: 'Course: a pipeline from scratch',
    items: [
      ['examples/README.md', 'All examples'],
      ['examples/01-monolith.ts', '1. The monolith'],
      ['examples/02-manual-split.ts', '2. The manual split'],
      ['examples/03-ping-pong.ts', '3. Ping-pong'],
      ['examples/04-naive.ts', '4. The naive pipeline'],
      ['examples/05-gpipe.ts', '5. GPipe'],
      ['examples/06-1f1b.ts', '6. One forward, one backward'],
      ['examples/interleaved.ts', '7. Interleaved stages'],
      ['examples/zero-bubble.ts', '8. Zero bubble'],
      ['examples/pipeline.ts', '9. The complete job'],
      ['examples/from-scratch/comms.ts', 'In 300 lines: messages'],
      ['examples/from-scratch/model.ts', 'In 300 lines: the network'],
      ['examples/from-scratch/schedule.ts', 'In 300 lines: schedules'],
      'examples/exercises.md',
    ],
  },
  {
    text: 'Course: CS336, Parallelism 2',
    items: [
      ['examples/collectives.ts', '1. Collectives'],
      ['examples/benchmark-collectives.ts', '2. Their bandwidth'],
      ['examples/lecture/data-parallel.ts', '3. A data parallel MLP'],
      ['examples/data-parallel.ts', '4. Overlap with the backward pass'],
      ['examples/lecture/tensor-parallel.ts', '5. A tensor parallel MLP'],
      ['examples/tensor-parallel.ts', '6. Tensor parallel layers'],
      ['examples/lecture/pipeline-parallel.ts', '7. A pipeline parallel MLP'],
      ['examples/fsdp.ts', '8. FSDP, and its memory'],
      ['examples/gpt.ts', '9. A GPT on any mesh'],
      ['examples/continue.ts', '10. Resuming in another layout'],
      ['docs/questions.md', "Students' questions"],
    ],
  },
  {
    text: 'More examples',
    items: [
      ['examples/cnn.ts', 'A convolutional network'],
      ['examples/parameter-server.ts', 'A parameter server'],
      ['examples/mnist-fit.ts', 'model.fit of tf.layers'],
      ['examples/recovery.ts', 'Replicas that lose a rank'],
      ['examples/functions.ts', 'Ranks as functions'],
    ],
  },
  {
    text: 'Start jobs',
    items: [
      ['docs/launcher.md', 'The launcher, and its flags'],
      'docs/several-hosts.md',
      ['docs/spawn.md', 'Ranks started by a program'],
      'docs/deploy/kubernetes.md',
      'docs/deploy/slurm.md',
      ['docs/deploy/mpi.md', 'mpirun and srun'],
      'docs/deploy/ray.md',
    ],
  },
  {
    text: 'Exchange data between ranks',
    items: ['docs/distributed.md', 'docs/mpi.md'],
  },
  {
    text: 'Train on several ranks',
    items: [
      'docs/training.md',
      ['docs/pipeline.md', 'Pipelines'],
      ['docs/data-parallel.md', 'Data parallel'],
      ['docs/zero.md', 'Sharded (ZeRO, FSDP)'],
      ['docs/tensor-parallel.md', 'Tensor parallel'],
      ['docs/context-parallel.md', 'Context parallel'],
      ['docs/planning.md', 'What fits'],
      'docs/models.md',
    ],
  },
  {
    text: 'Feed, tune, save and resume',
    items: [
      'docs/data.md',
      'docs/optimizers.md',
      'docs/metrics.md',
      'docs/checkpoints.md',
      'docs/gpt2.md',
    ],
  },
  {
    text: 'Choose where tensors are computed',
    items: ['docs/tensorflow.md', ['docs/wasm.md', 'WebAssembly'], 'docs/gpu.md', 'docs/webgpu.md'],
  },
  {
    text: 'Find out why a job fails or is slow',
    items: [
      'docs/dashboard.md',
      'docs/trace.md',
      ['docs/diagnosis.md', 'Diagnosis'],
      'docs/chaos.md',
      'docs/performance.md',
    ],
  },
  {
    text: 'Concepts',
    items: ['docs/concepts.md', 'docs/hardware.md', 'docs/glossary.md'],
  },
  {
    text: 'Algorithms of collectives',
    items: [
      ['docs/algorithms/README.md', 'Overview'],
      'docs/algorithms/ring.md',
      'docs/algorithms/recursive-doubling.md',
      'docs/algorithms/halving-doubling.md',
      'docs/algorithms/recursive-halving.md',
      'docs/algorithms/direct.md',
      'docs/algorithms/pairwise.md',
      'docs/algorithms/bruck.md',
      'docs/algorithms/binomial-tree.md',
      'docs/algorithms/chain.md',
      'docs/algorithms/linear.md',
      'docs/algorithms/hierarchical.md',
      'docs/algorithms/dissemination.md',
      'docs/algorithms/ordered.md',
      'docs/algorithms/flat.md',
      'docs/algorithms/window.md',
      'docs/algorithms/mpi.md',
    ],
  },
  {
    text: 'Reference',
    items: ['docs/errors.md', 'docs/benchmarks.md', 'docs/protocol.md', 'docs/threat-model.md'],
  },
  {
    text: 'Packages',
    items: [
      'packages/launcher/README.md',
      'packages/distributed/README.md',
      'packages/training/README.md',
      'packages/models/README.md',
      'packages/layers/README.md',
      'packages/observe/README.md',
      'packages/mpi/README.md',
      'packages/store/README.md',
      'packages/native/README.md',
      'packages/core/README.md',
    ],
  },
  {
    text: 'Contribute',
    items: [
      'CONTRIBUTING.md',
      'docs/architecture.md',
      'docs/extending.md',
      'test/README.md',
      ['scripts/bench/README.md', 'Benchmarks: how they are measured'],
      ['scripts/parity/README.md', 'Parity: how it is measured'],
      'SECURITY.md',
      'CODE_OF_CONDUCT.md',
      'CHANGELOG.md',
      ['docs/history/0.1.0.md', 'Notes on 0.1.0'],
    ],
  },
  {
    text: 'Decisions',
    items: [
      'docs/decisions/README.md',
      'docs/decisions/0001-generators-as-algorithms.md',
      'docs/decisions/0002-worker-or-inline-engine.md',
      'docs/decisions/0003-libc-sockets.md',
      'docs/decisions/0004-tape-based-vjp.md',
      'docs/decisions/0005-typescript-6-esm-only.md',
      'docs/decisions/0006-messagepack-and-hmac.md',
      'docs/decisions/0007-heaps-without-names.md',
      'docs/decisions/0008-one-verdict.md',
      'docs/decisions/0009-mpi-below-the-engine.md',
      'docs/decisions/0010-status-page.md',
      'docs/decisions/0011-slots-for-small-collectives.md',
      'docs/decisions/0012-kernels-in-the-tensors-memory.md',
      'docs/decisions/0013-tensorflow-past-the-engine.md',
      'docs/decisions/0014-tensors-without-memory.md',
      'docs/decisions/0015-tensorflow-in-the-arena.md',
      'docs/decisions/0016-bundled-packages.md',
      'docs/decisions/0017-functions-of-operations.md',
      'docs/decisions/0018-kernels-in-the-binding.md',
      'docs/decisions/0019-the-house.md',
      'docs/decisions/0020-one-step-for-every-layout.md',
      'docs/decisions/0021-windows-on-large-buffers.md',
      'docs/decisions/0022-gradients-written-into-buckets.md',
      'docs/decisions/0023-nccl-on-device-buffers.md',
      'docs/decisions/0024-size-in-tokens.md',
      'docs/decisions/0025-records-of-aes-gcm.md',
      'docs/decisions/0026-collectives-on-the-callers-thread.md',
      'docs/decisions/0027-passes-as-functions.md',
      'docs/decisions/0028-products-of-a-blas.md',
    ],
  },
]

/** All entries as pairs of a path and a title; the title of a heading is undefined. */
export const entries = sidebar.flatMap(({ items }) =>
  items.map((entry) => (typeof entry === 'string' ? [entry] : entry)),
)
