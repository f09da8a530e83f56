/**
 * What the package `@tensorflow/tfjs` adds to its core for training: the functions of gradients, and
 * the operations as methods of tensors. A program of its own: bundled as dist/gradients.cjs, with
 * what these use of the core, because Node cannot load the core's files one by one.
 */
import '@tensorflow/tfjs-core/dist/public/chained_ops/register_all_chained_ops.js'
import '@tensorflow/tfjs-core/dist/register_all_gradients.js'
