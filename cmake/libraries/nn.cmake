# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  nn_functions
  HEADERS nn/functions.h
  DEPS precision_dtype precision_host_device precision_rounding
)

brigade_library(
  nn_segments
  HEADERS nn/segments.h
  DEPS precision_host_device
)

brigade_library(
  nn_texts
  HEADERS nn/texts.h
  DEPS precision_host_device
)

brigade_library(
  nn_token_ids
  HEADERS nn/token_ids.h
  DEPS nn_texts precision_host_device
)

brigade_library(
  nn_rows
  HEADERS nn/rows.h
  DEPS kernels_simd precision_host_device
  CUDA_LIBRARIES CUDA::toolkit
)

brigade_library(
  nn_token_order
  HEADERS nn/token_order.h
  SOURCES nn/token_order.cc
  DEPS nn_rows nn_token_ids precision_host_device
  CUDA_LIBRARIES CUDA::toolkit
)

brigade_library(
  nn_philox
  HEADERS nn/philox.h
  DEPS precision_host_device
)

brigade_library(
  nn_formulas
  HEADERS nn/attention_math.h nn/cached_attention_math.h nn/cross_entropy_math.h nn/dropout_math.h
    nn/embedding_math.h nn/grouped_heads_math.h nn/norm_math.h nn/pointwise_math.h nn/rotary_math.h
    nn/squared_error_math.h nn/swiglu_math.h
  DEPS nn_functions nn_philox nn_rows nn_segments nn_token_ids nn_token_order
)

brigade_library(
  nn_rows_cuda CUDA_ONLY
  HEADERS nn/rows_cuda.cuh nn/warp.h
  DEPS nn_rows device_requirements kernels_launch_kernel
)

brigade_library(
  nn_formulas_cuda CUDA_ONLY
  CUDA_SOURCES nn/formulas_cuda.cu nn/token_order_cuda.cu
  DEPS nn_formulas nn_rows_cuda nn_token_order
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  nn_workspace
  HEADERS nn/workspace.h
  SOURCES nn/workspace.cc
  DEPS nn_rows nn_token_order device_context device_status_macros precision_dtype
  CUDA_DEPS nn_formulas_cuda device_cuda_device_guard device_cuda_status
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings
)

brigade_library(
  nn_arrays
  HEADERS nn/arrays.h
  DEPS nn_functions nn_segments nn_token_ids nn_workspace precision_dtype precision_dtype_names
  PUBLIC_LIBRARIES absl::status absl::strings
)

brigade_library(
  nn_enqueue
  HEADERS nn/enqueue.h
  DEPS nn_rows nn_workspace device_status_macros device_stream kernels_simd
  CUDA_DEPS device_cuda_status
  PUBLIC_LIBRARIES absl::status absl::strings
)

brigade_library(
  nn_tiles
  HEADERS nn/tile_operands.h nn/tile_product.h
  DEPS nn_functions kernels_simd precision_float16 precision_host_device
)

brigade_library(
  nn_attention_cuda CUDA_ONLY
  HEADERS nn/attention_cuda.h nn/attention_launch.cuh nn/tensor_cores.cuh
  CUDA_SOURCES nn/attention_backward_cuda.cu nn/attention_cuda.cu
  DEPS nn_rows_cuda nn_segments kernels_launch_kernel precision_dtype
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  nn_attention
  HEADERS nn/attention.h nn/attention_block.h nn/attention_cpu.h nn/attention_passes.h
    nn/attention_tiles.h
  SOURCES nn/attention.cc nn/attention_backward_cpu.cc nn/attention_block.cc
    nn/attention_delta_cpu.cc nn/attention_forward_cpu.cc
  DEPS nn_arrays nn_enqueue nn_formulas nn_functions nn_segments nn_tiles device_status_macros
    device_stream kernels_simd precision_dtype
  CUDA_DEPS nn_attention_cuda nn_formulas_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::status absl::strings
  FLAGS -ffp-contract=fast
)

brigade_library(
  nn_rotary
  HEADERS nn/rotary.h
  SOURCES nn/rotary.cc
  DEPS nn_arrays nn_enqueue nn_formulas nn_segments device_context device_status_macros
    precision_dtype_names
  CUDA_DEPS nn_formulas_cuda
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  nn_random
  HEADERS nn/random.h
)

brigade_library(
  nn_gradient
  HEADERS nn/gradient.h
)

brigade_library(
  nn_blas
  HEADERS nn/blas.h nn/blas_onednn.h nn/blas_cpu.h nn/blas_cuda.h
  SOURCES nn/blas.cc nn/blas_cpu.cc nn/blas_onednn.cc
  CUDA_SOURCES nn/blas_cuda.cc
  DEPS nn_arrays nn_functions device_context device_status_macros device_stream kernels_simd
    precision_dtype precision_dtype_names precision_rounding
  CUDA_DEPS device_cuda_device_guard
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES Brigade::system_openblas absl::strings
  OPTIONAL_LIBRARIES Brigade::system_onednn
  CUDA_LIBRARIES CUDA::toolkit
  LINKS_DL
)

brigade_library(
  nn_cached_attention
  HEADERS nn/cached_attention.h
  SOURCES nn/cached_attention.cc
  DEPS nn_arrays nn_enqueue nn_formulas device_status_macros
  CUDA_DEPS nn_formulas_cuda
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  nn_cross_entropy
  HEADERS nn/cross_entropy.h
  SOURCES nn/cross_entropy.cc
  DEPS nn_arrays nn_enqueue nn_formulas nn_token_ids device_status_macros
  CUDA_DEPS nn_formulas_cuda
)

brigade_library(
  nn_dropout
  HEADERS nn/dropout.h
  SOURCES nn/dropout.cc
  DEPS nn_arrays nn_enqueue nn_formulas nn_gradient
  CUDA_DEPS nn_formulas_cuda
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  nn_embedding
  HEADERS nn/embedding.h
  SOURCES nn/embedding.cc
  DEPS nn_arrays nn_enqueue nn_formulas nn_gradient nn_segments nn_token_ids nn_workspace
    device_status_macros
  CUDA_DEPS nn_formulas_cuda
)

brigade_library(
  nn_grouped_heads
  HEADERS nn/grouped_heads.h
  SOURCES nn/grouped_heads.cc
  DEPS nn_arrays nn_enqueue nn_formulas device_status_macros
  CUDA_DEPS nn_formulas_cuda
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  nn_layer_norm
  HEADERS nn/layer_norm.h
  SOURCES nn/layer_norm.cc
  DEPS nn_arrays nn_enqueue nn_formulas nn_gradient nn_workspace device_status_macros
  CUDA_DEPS nn_formulas_cuda
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  nn_pointwise
  HEADERS nn/pointwise.h
  SOURCES nn/pointwise.cc
  DEPS nn_arrays nn_enqueue nn_formulas nn_gradient nn_workspace device_status_macros
  CUDA_DEPS nn_formulas_cuda
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  nn_linear
  HEADERS nn/linear.h
  SOURCES nn/linear.cc
  DEPS nn_blas nn_gradient nn_pointwise nn_workspace device_status_macros device_stream
    precision_dtype
  PUBLIC_LIBRARIES absl::status
)

brigade_library(
  nn_lora
  HEADERS nn/lora.h
  SOURCES nn/lora.cc
  DEPS nn_blas nn_dropout nn_gradient device_status_macros device_stream precision_dtype
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
)

brigade_library(
  nn_rms_norm
  HEADERS nn/rms_norm.h
  SOURCES nn/rms_norm.cc
  DEPS nn_arrays nn_enqueue nn_formulas nn_gradient nn_workspace device_status_macros
  CUDA_DEPS nn_formulas_cuda
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  nn_swiglu
  HEADERS nn/swiglu.h
  SOURCES nn/swiglu.cc
  DEPS nn_arrays nn_enqueue nn_formulas nn_gradient
  CUDA_DEPS nn_formulas_cuda
  PUBLIC_LIBRARIES absl::status
)

brigade_library(
  nn_squared_error
  HEADERS nn/squared_error.h
  SOURCES nn/squared_error.cc
  DEPS nn_arrays nn_enqueue nn_formulas nn_pointwise device_status_macros
  CUDA_DEPS nn_formulas_cuda
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  nn
  DEPS nn_attention nn_blas nn_cached_attention nn_cross_entropy nn_dropout nn_embedding
    nn_grouped_heads nn_layer_norm nn_linear nn_lora nn_pointwise nn_random nn_rms_norm nn_rotary
    nn_squared_error nn_swiglu nn_workspace
)
