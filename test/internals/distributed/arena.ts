export { createAllocator } from '../../../packages/distributed/src/arena/allocator.ts'
export { createArena } from '../../../packages/distributed/src/arena/arena.ts'
export { createMemory, type Heap, heapOf } from '../../../packages/distributed/src/arena/heap.ts'
export { instantiateKernels } from '../../../packages/distributed/src/kernels/kernels.ts'
