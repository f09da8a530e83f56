// What the header of NCCL needs of CUDA's headers, which TensorFlow's wheels do not bring completely.
#pragma once
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
