// Three walks through the sources: the files that data passes on its way to a socket or to a kernel, in
// the order of the calls. check-walk.mjs compares them with the sources; page.mjs shows them in
// docs/architecture.md.
//
// A walk has every file whose functions are on the call stack between its first call and the last one, on
// either thread, and every file that copies, cuts, queues or encodes the data on the way. Functions that
// only check the data, look something up or allocate memory, and interfaces, are not steps.

/**
 * @typedef {object} Step
 * @property {string} file
 * @property {readonly string[]} functions `name` or `Class.name`; the first is called by an earlier step
 * @property {string} does
 * @property {string} [calledBy] the file of that step; default: the step before
 * @property {string} [calledAs] the name by which it is called; default: that of the first function
 * @property {{ file: string, name: string }} [contract] what the caller imports instead of the file: an
 *   interface or a data structure that both know
 *
 * @typedef {object} Walk
 * @property {string} name
 * @property {string} title
 * @property {number} bound the number of files that it may pass
 * @property {number} goal the number of files that it should pass
 * @property {readonly Step[]} steps
 */

const training = (/** @type {string} */ name) => `packages/training/src/${name}.ts`
const distributed = (/** @type {string} */ name) => `packages/distributed/src/${name}.ts`
const group = { file: distributed('process-group'), name: 'ProcessGroup' }

/** @type {Step[]} */
const fromTensorToMemory = [
  {
    file: training('backend/host-memory'),
    functions: ['writeTo'],
    does: 'asks the current backend for the values of the tensor',
  },
  {
    file: training('backend/wasm/backend'),
    functions: ['wasmBackend.writeTo'],
    contract: { file: training('tfjs/backend'), name: 'TensorBackend' },
    does: 'copies the values to the memory that ranks exchange',
  },
]

/** @type {Step[]} */
const fromCallToEngine = [
  {
    file: distributed('groups/calls/operations'),
    functions: ['operations.start'],
    does: 'gives the operation its position in the group, and starts it',
  },
  {
    file: distributed('groups/calls/staging'),
    functions: ['StagedBuffers.constructor', 'StagedBuffers.#place'],
    calledAs: 'StagedBuffers',
    does: 'copies the buffer into the arena, unless it is there already',
  },
  {
    file: distributed('runners/worker-runner'),
    functions: ['driver.start', 'command'],
    calledBy: distributed('groups/calls/operations'),
    contract: { file: distributed('ticket'), name: 'TicketDriver' },
    does: 'writes a command, and wakes the thread of the engine',
  },
  {
    file: distributed('runners/worker-memory'),
    functions: ['writeOperation', 'readOperation'],
    does: 'encodes the operation in memory that both threads share',
  },
  {
    file: distributed('runners/worker-main'),
    functions: ['runBlocking', 'takeCommands', 'runCommand'],
    calledBy: distributed('runners/worker-runner'),
    calledAs: 'commands',
    contract: { file: distributed('runners/worker-memory'), name: 'SharedState' },
    does: 'runs in the thread of the engine: takes the command',
  },
  {
    file: distributed('runners/polling-engine'),
    functions: ['runUntil'],
    does: 'lets the thread take commands and move messages in turn',
  },
  {
    file: distributed('engine/engine'),
    functions: ['engine.start', 'run', 'engine.progress'],
    calledBy: distributed('runners/worker-main'),
    does: 'starts a task, and resumes it whenever its messages have moved',
  },
  {
    file: distributed('algorithms/select'),
    functions: ['resolveAlgorithm', 'findAlgorithm'],
    does: 'chooses the algorithm by operation, size and tuning table',
  },
]

/**
 * @param {string} algorithm the file that sends
 * @returns {Step[]}
 */
const fromTaskToSocket = (algorithm) => [
  {
    file: distributed('engine/task'),
    functions: ['Task.send', 'TaskTransfer.constructor'],
    calledBy: algorithm,
    contract: { file: distributed('algorithms/channel'), name: 'Channel' },
    does: 'is the channel of the algorithm: makes a transfer of each message',
  },
  {
    file: distributed('engine/messages/link'),
    functions: ['Link.stream', 'Link.move', 'Link.onFrame'],
    does: 'is the connection with one peer: moves its messages',
  },
  {
    file: distributed('engine/messages/stream'),
    functions: ['Stream', 'takeIndex'],
    does: 'keeps the messages of one operation in order',
  },
  {
    file: distributed('engine/messages/sends'),
    functions: ['Sends.start', 'Sends.onClearToSend'],
    calledBy: distributed('engine/messages/link'),
    calledAs: 'sends',
    does: 'asks the peer for clear-to-send if the message is large',
  },
  {
    file: distributed('engine/messages/frame-reader'),
    functions: ['FrameReader.read'],
    calledBy: distributed('engine/messages/link'),
    does: "reads the peer's clear-to-send",
  },
  {
    file: distributed('engine/messages/frame-writer'),
    functions: ['FrameWriter.writeData', 'FrameWriter.flush'],
    calledBy: distributed('engine/messages/sends'),
    contract: { file: distributed('engine/messages/link'), name: 'Link' },
    does: 'queues the frame, and sends what the socket takes',
  },
  {
    file: distributed('engine/messages/frame'),
    functions: ['writeHeader'],
    does: 'encodes the header of the frame',
  },
  {
    file: distributed('transports/tcp-transport'),
    functions: ['transport.trySend'],
    calledBy: distributed('engine/messages/frame-writer'),
    contract: { file: distributed('transports/transport'), name: 'Transport' },
    does: 'knows the socket of the peer',
  },
  {
    file: 'packages/native/src/sockets.ts',
    functions: ['sendBytes'],
    does: 'calls `send` of libc, which reads the arena itself',
  },
]

/** @type {readonly Walk[]} */
export const walks = [
  {
    name: 'gradient',
    title: 'The files that a bucket of gradients passes from dataParallel to the socket',
    bound: 24,
    goal: 24,
    steps: [
      {
        file: training('parallel/data/data-parallel'),
        functions: ['dataParallel', 'DataParallel.constructor'],
        does: 'makes a replica, which listens to the backward pass',
      },
      {
        file: training('parallel/gradients/exchange'),
        functions: ['gradientListener', 'fillBuckets', 'add', 'startComplete'],
        calledAs: 'fillBuckets',
        does: 'takes each gradient of the backward pass, finds its place in a bucket, and starts complete buckets',
      },
      ...fromTensorToMemory,
      {
        file: training('parallel/data/data-parallel'),
        functions: ['start', 'allReduceExchange'],
        calledBy: training('parallel/gradients/exchange'),
        contract: { file: training('parallel/gradients/exchange'), name: 'GradientExchange' },
        does: 'averages a complete bucket over the ranks',
      },
      {
        file: distributed('groups/calls/persistent'),
        functions: ['PreparedOperation.start'],
        contract: { file: distributed('persistent-operation'), name: 'PersistentOperation' },
        does: 'starts the all-reduce that was prepared for the bucket',
      },
      {
        ...fromCallToEngine[0],
        functions: ['operations.launch'],
        contract: { file: distributed('groups/calls/persistent'), name: 'Owner' },
      },
      ...fromCallToEngine.slice(1),
      {
        file: distributed('algorithms/ring'),
        functions: ['allReduce', 'passAround'],
        calledAs: 'ring',
        does: 'says which part of the buffer is sent to which rank, step by step',
      },
      {
        file: distributed('algorithms/pieces'),
        functions: ['cutIntoChunks', 'cutIntoSegments'],
        does: 'cuts the buffer into chunks and these into segments',
      },
      ...fromTaskToSocket(distributed('algorithms/ring')),
    ],
  },
  {
    name: 'activation',
    title: 'The files that an activation passes from the executor of the pipeline to the socket',
    bound: 23,
    goal: 23,
    steps: [
      {
        file: training('parallel/pipeline/executor'),
        functions: ['train', 'forward', 'sendForward'],
        does: 'runs the actions of the schedule',
      },
      {
        file: training('parallel/pipeline/activations'),
        functions: ['send', 'prepared'],
        does: 'takes the prepared message to the rank of the next stage, and fills its buffer',
      },
      ...fromTensorToMemory,
      {
        file: training('parallel/pipeline/activations'),
        functions: ['preparedMessages', 'send'],
        calledBy: training('parallel/pipeline/activations'),
        does: 'sends a buffer that is in use until it has arrived',
      },
      {
        file: distributed('groups/calls/persistent'),
        functions: ['PreparedOperation.start'],
        contract: { file: distributed('persistent-operation'), name: 'PersistentOperation' },
        does: 'starts the message, whose arguments were checked when it was prepared',
      },
      {
        ...fromCallToEngine[0],
        functions: ['operations.launch'],
        contract: { file: distributed('groups/calls/persistent'), name: 'Owner' },
      },
      ...fromCallToEngine.slice(1),
      {
        file: distributed('algorithms/direct'),
        functions: ['send'],
        calledAs: 'direct',
        does: 'sends the buffer as one message',
      },
      ...fromTaskToSocket(distributed('algorithms/direct')),
    ],
  },
  {
    name: 'batch',
    title: 'The files that a batch of examples passes from fit to the kernel of a linear layer',
    bound: 19,
    goal: 19,
    steps: [
      {
        file: training('trainer/trainer'),
        functions: ['Trainer.fit', 'Trainer.step'],
        does: 'is what a user calls; runs each step on a batch',
      },
      {
        file: training('trainer/fit'),
        functions: ['fit'],
        does: 'asks for one batch after another',
      },
      {
        file: training('trainer/fit-data'),
        functions: ['sourceOf', 'loaderSource', 'traceInput'],
        does: 'makes batches of what the user has passed, and records how long they are waited for',
      },
      {
        file: training('data/batches'),
        functions: ['dataLoader'],
        does: 'keeps the position in the epoch',
      },
      {
        file: training('data/batches'),
        functions: ['batches', 'exampleBatch'],
        does: 'cuts the order of the epoch into batches',
      },
      {
        file: training('data/order'),
        functions: ['endsOfShare'],
        does: 'cuts a batch into the parts of replicas',
      },
      {
        file: training('trainer/batch'),
        functions: ['batchOf'],
        calledBy: training('trainer/trainer'),
        does: 'makes functions of arrays',
      },
      {
        file: training('parallel/pipeline/pipeline'),
        functions: ['Pipeline.step', 'Pipeline.#train'],
        calledBy: training('trainer/trainer'),
        calledAs: 'Pipeline',
        does: 'is the model, of one stage or of a rank with several; runs a step',
      },
      {
        file: 'packages/distributed/src/record/spans.ts',
        functions: ['timeSpan'],
        does: 'records how long each part of the step takes',
      },
      {
        file: training('parallel/pipeline/microbatches'),
        functions: ['cutBatch', 'cut', 'openPart', 'rows'],
        calledBy: training('parallel/pipeline/pipeline'),
        does: 'cuts the batch into parts, and makes their tensors',
      },
      {
        file: training('backend/host-memory'),
        functions: ['createTensor'],
        calledBy: training('data/batches'),
        does: 'asks the current backend for a tensor to fill',
      },
      {
        file: training('backend/wasm/backend'),
        functions: ['wasmBackend.create'],
        contract: { file: training('tfjs/backend'), name: 'TensorBackend' },
        calledAs: 'create',
        does: 'lets the data set write into the memory of the tensor',
      },
      {
        file: training('data/mnist'),
        functions: ['mnist'],
        calledBy: training('data/batches'),
        calledAs: 'read',
        contract: { file: training('data/examples'), name: 'Field' },
        does: 'copies the examples',
      },
      {
        file: training('parallel/pipeline/executor'),
        functions: ['train', 'forward'],
        calledBy: training('parallel/pipeline/pipeline'),
        calledAs: 'train',
        does: 'runs the actions of the schedule: of a whole model, each part forward and backward',
      },
      {
        file: training('parallel/pipeline/stage'),
        functions: ['forward', 'stageRunner'],
        does: 'keeps the part until its backward pass, and chooses how the model is recorded',
      },
      {
        file: training('autograd/record'),
        functions: ['RepeatableRecording.#record', 'recordModule'],
        calledAs: 'RepeatableRecording',
        does: 'records the forward pass of the model',
      },
      {
        file: training('nn/sequential'),
        functions: ['ShardedMLP.record'],
        contract: { file: training('model/module'), name: 'Module' },
        does: 'passes on its layers',
      },
      {
        file: training('nn/record-layers'),
        functions: ['recordLayers'],
        does: 'asks the current backend to record the operations of the layers',
      },
      {
        file: training('backend/wasm/operations'),
        functions: ['recordOperations'],
        calledBy: training('backend/wasm/backend'),
        calledAs: 'recordOperations',
        does: 'runs the steps of the operations at addresses',
      },
      {
        file: training('backend/wasm/steps'),
        functions: ['linearStep'],
        calledAs: 'stepsOf',
        does: 'calls the kernel, which reads the tensor itself',
      },
    ],
  },
]
