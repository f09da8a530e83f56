/**
 * The parts of the package `@tensorflow/tfjs` that training needs and tfjs-core lacks: the gradient
 * functions, and operations as methods of tensors. The build bundles this module and the imported files
 * of tfjs-core as dist/gradients.cjs, because Node cannot load those files one by one. No source file
 * imports this module.
 */
import '@tensorflow/tfjs-core/dist/public/chained_ops/register_all_chained_ops.js'
import '@tensorflow/tfjs-core/dist/register_all_gradients.js'
