/**
 * The part of the package `@tensorflow/tfjs` that its core lacks for training: the gradient functions,
 * and the operations as methods of tensors. Nothing imports this module. It is bundled as
 * dist/gradients.cjs together with the files of the core that it needs, because Node cannot load those
 * one by one.
 */
import '@tensorflow/tfjs-core/dist/public/chained_ops/register_all_chained_ops.js'
import '@tensorflow/tfjs-core/dist/register_all_gradients.js'
