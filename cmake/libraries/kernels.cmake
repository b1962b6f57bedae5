# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  kernels_reduce_math
  HEADERS kernels/reduce/reduce_math.h
  DEPS precision_host_device precision_rounding precision_float16
)

brigade_library(
  kernels_step_control_step_state
  HEADERS kernels/step_control/one_step.h kernels/step_control/step_state.h
  DEPS precision_host_device
)

brigade_library(
  kernels_value_range
  HEADERS kernels/value_range.h
  SOURCES kernels/value_range.cc
  PUBLIC_LIBRARIES absl::status absl::strings
)

brigade_library(
  kernels_step_control_math
  HEADERS kernels/step_control/step_control_math.h
  DEPS precision_host_device precision_rounding kernels_step_control_step_state
)

brigade_library(
  kernels_weight_decay
  HEADERS kernels/weight_decay.h
)

brigade_library(
  kernels_step_control_parameters
  HEADERS kernels/step_control/step_control_parameters.h
  DEPS kernels_step_control_math kernels_weight_decay
)

brigade_library(
  kernels_simd
  HEADERS kernels/simd.h
  SOURCES kernels/simd.cc
)

brigade_library(
  kernels_internal_cache_line
  HEADERS kernels/internal/cache_line.h
  DEPS precision_host_device
)

brigade_library(
  kernels_nontemporal_store
  HEADERS kernels/nontemporal_store.h
  SOURCES kernels/nontemporal_store.cc
  DEPS kernels_simd kernels_internal_cache_line precision_host_device
)

brigade_library(
  kernels_step_control_cpu
  HEADERS kernels/step_control/step_control_cpu.h
  DEPS kernels_step_control_math kernels_nontemporal_store kernels_simd
)

brigade_library(
  kernels_internal_segments
  HEADERS kernels/internal/segments.h
  DEPS precision_host_device
)

brigade_library(
  kernels_internal_cpu_list
  HEADERS kernels/internal/cpu_list.h
  DEPS kernels_internal_segments device_threads_thread_pool kernels_nontemporal_store
  PUBLIC_LIBRARIES absl::span
)

brigade_library(
  kernels_list_arguments
  HEADERS kernels/list_arguments.h
  SOURCES kernels/list_arguments.cc
  DEPS device_address_registry device_status_macros device_stream precision_dtype
    precision_dtype_names
  PUBLIC_LIBRARIES absl::span absl::status absl::strings
)

brigade_library(
  kernels_update_types
  HEADERS kernels/update_types.h
  DEPS precision_float16
)

brigade_library(
  kernels_internal_update_dispatch
  HEADERS kernels/internal/update_dispatch.h
  SOURCES kernels/internal/update_dispatch.cc
  DEPS kernels_list_arguments kernels_update_types kernels_step_control_step_state precision_dtype
    precision_dtype_names precision_rounding
  PUBLIC_LIBRARIES absl::status absl::strings
)

brigade_library(
  kernels_launch_kernel CUDA_ONLY
  HEADERS kernels/launch_kernel.h
  DEPS precision_rounding
  CUDA_LIBRARIES CUDA::toolkit
)

brigade_library(
  kernels_step_control_cuda CUDA_ONLY
  HEADERS kernels/step_control/step_control_cuda.h
  CUDA_SOURCES kernels/step_control/step_control_cuda.cu
  DEPS kernels_step_control_math kernels_launch_kernel
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_step_control
  HEADERS kernels/step_control/step_control.h
  SOURCES kernels/step_control/step_control.cc
  DEPS kernels_step_control_math kernels_step_control_parameters kernels_step_control_cpu
    device_stream device_threads_thread_pool kernels_nontemporal_store kernels_internal_cpu_list
    kernels_list_arguments precision_dtype kernels_step_control_step_state kernels_value_range
    kernels_internal_update_dispatch
  CUDA_DEPS kernels_step_control_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_adam_math
  HEADERS kernels/adam/adam_math.h
  DEPS precision_host_device precision_rounding kernels_step_control_step_state
)

brigade_library(
  kernels_adam8_math
  HEADERS kernels/adam8/adam8_math.h
  DEPS precision_host_device precision_rounding kernels_adam_math
)

brigade_library(
  kernels_lamb_math
  HEADERS kernels/lamb/lamb_math.h
  DEPS precision_host_device precision_rounding kernels_step_control_step_state
)

brigade_library(
  kernels_adafactor_math
  HEADERS kernels/adafactor/adafactor_math.h
  DEPS precision_host_device precision_rounding kernels_step_control_step_state
)

brigade_library(
  kernels_adafactor_parameters
  HEADERS kernels/adafactor/adafactor_parameters.h
  DEPS kernels_adafactor_math kernels_weight_decay
)

brigade_library(
  kernels_internal_lanes
  HEADERS kernels/internal/lanes.h
  DEPS kernels_simd precision_float16
)

brigade_library(
  kernels_adafactor_lanes
  HEADERS kernels/adafactor/adafactor_lanes.h
  DEPS kernels_adafactor_math kernels_internal_lanes
)

brigade_library(
  kernels_cast_math
  HEADERS kernels/cast/cast_math.h
  DEPS precision_host_device precision_rounding precision_float16
)

brigade_library(
  kernels_cast_elements
  HEADERS kernels/cast/cast_elements.h
  DEPS kernels_cast_math kernels_simd kernels_internal_lanes
)

brigade_library(
  kernels_internal_halve_lanes
  HEADERS kernels/internal/halve_lanes.h
  DEPS kernels_simd precision_rounding
)

brigade_library(
  kernels_adafactor_cpu
  HEADERS kernels/adafactor/adafactor_cpu.h
  SOURCES kernels/adafactor/adafactor_cpu.cc
  DEPS kernels_adafactor_math kernels_nontemporal_store kernels_simd kernels_adafactor_lanes
    kernels_update_types kernels_cast_elements kernels_internal_halve_lanes kernels_internal_lanes
    kernels_step_control_step_state precision_float16
)

brigade_library(
  kernels_internal_enqueue_list
  HEADERS kernels/internal/enqueue_list.h
  DEPS kernels_internal_cpu_list device_stream
  CUDA_DEPS device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  CUDA_LIBRARIES CUDA::toolkit
)

brigade_library(
  kernels_internal_update_cpu
  HEADERS kernels/internal/update_cpu.h
  DEPS kernels_internal_cpu_list device_status_macros device_threads_thread_pool
    kernels_step_control_step_state
  PUBLIC_LIBRARIES absl::span absl::status absl::strings
)

brigade_library(
  kernels_internal_enqueue_update
  HEADERS kernels/internal/enqueue_update.h
  DEPS kernels_internal_enqueue_list kernels_internal_update_cpu kernels_internal_update_dispatch
    device_stream kernels_list_arguments
  PUBLIC_LIBRARIES absl::span absl::status
)

brigade_library(
  kernels_internal_matrix_shape
  HEADERS kernels/internal/matrix_shape.h
  PUBLIC_LIBRARIES absl::status absl::strings
)

brigade_library(
  kernels_internal_gpu_tile
  HEADERS kernels/internal/gpu_tile.h
  DEPS precision_host_device
)

brigade_library(
  kernels_internal_update_tile
  HEADERS kernels/internal/update_tile.h
  DEPS kernels_internal_gpu_tile kernels_internal_segments kernels_update_types
    kernels_step_control_step_state precision_host_device
)

brigade_library(
  kernels_internal_warp CUDA_ONLY
  HEADERS kernels/internal/warp.h
  DEPS kernels_internal_gpu_tile precision_rounding
)

brigade_library(
  kernels_adafactor_cuda CUDA_ONLY
  HEADERS kernels/adafactor/adafactor_cuda.h
  CUDA_SOURCES kernels/adafactor/adafactor_cuda.cu
  DEPS kernels_adafactor_math kernels_launch_kernel kernels_update_types kernels_internal_gpu_tile
    kernels_internal_segments kernels_internal_update_tile kernels_internal_warp
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_adafactor
  HEADERS kernels/adafactor/adafactor.h
  SOURCES kernels/adafactor/adafactor.cc
  DEPS kernels_adafactor_math kernels_adafactor_parameters kernels_adafactor_cpu device_stream
    device_threads_thread_pool kernels_nontemporal_store kernels_internal_cpu_list
    kernels_list_arguments precision_dtype kernels_value_range kernels_internal_enqueue_list
    kernels_internal_enqueue_update kernels_internal_matrix_shape kernels_internal_update_cpu
    kernels_internal_update_dispatch kernels_step_control_step_state
  CUDA_DEPS kernels_adafactor_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_muon_math
  HEADERS kernels/muon/muon_math.h
  DEPS precision_host_device precision_rounding kernels_step_control_step_state
)

brigade_library(
  kernels_muon_parameters
  HEADERS kernels/muon/muon_parameters.h
  DEPS kernels_muon_math kernels_weight_decay
)

brigade_library(
  kernels_one_bit_lamb_math
  HEADERS kernels/one_bit_lamb/one_bit_lamb_math.h
  DEPS precision_host_device precision_rounding kernels_lamb_math
)

brigade_library(
  kernels_lamb_parameters
  HEADERS kernels/lamb/lamb_parameters.h
  DEPS kernels_lamb_math kernels_weight_decay kernels_step_control_math
)

brigade_library(
  kernels_one_bit_lamb_parameters
  HEADERS kernels/one_bit_lamb/one_bit_lamb_parameters.h
  DEPS kernels_one_bit_lamb_math kernels_weight_decay kernels_lamb_parameters
)

brigade_library(
  kernels_one_bit_lamb_cpu
  HEADERS kernels/one_bit_lamb/one_bit_lamb_cpu.h
  SOURCES kernels/one_bit_lamb/one_bit_lamb_cpu.cc
  DEPS kernels_one_bit_lamb_math kernels_nontemporal_store kernels_simd kernels_internal_halve_lanes
    kernels_step_control_step_state precision_float16
)

brigade_library(
  kernels_lamb_cpu
  HEADERS kernels/lamb/lamb_cpu.h
  SOURCES kernels/lamb/lamb_cpu.cc
  DEPS kernels_lamb_math kernels_nontemporal_store kernels_simd kernels_update_types
    kernels_cast_elements kernels_internal_halve_lanes kernels_internal_lanes
    kernels_step_control_step_state precision_float16
)

brigade_library(
  kernels_lamb_tensors
  HEADERS kernels/lamb/lamb_tensors.h
  DEPS kernels_lamb_math device_status_macros device_stream kernels_value_range
    kernels_internal_enqueue_list kernels_internal_update_dispatch
  CUDA_DEPS device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::strings
)

brigade_library(
  kernels_lamb_cuda CUDA_ONLY
  HEADERS kernels/lamb/lamb_cuda.h
  CUDA_SOURCES kernels/lamb/lamb_cuda.cu
  DEPS kernels_lamb_math kernels_launch_kernel kernels_update_types kernels_internal_gpu_tile
    kernels_internal_segments kernels_internal_update_tile kernels_internal_warp
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_lamb
  HEADERS kernels/lamb/lamb.h
  SOURCES kernels/lamb/lamb.cc
  DEPS kernels_lamb_math kernels_lamb_parameters kernels_lamb_cpu device_stream
    device_threads_thread_pool kernels_nontemporal_store kernels_internal_cpu_list
    kernels_list_arguments precision_dtype kernels_lamb_tensors kernels_value_range
    kernels_internal_enqueue_list kernels_internal_update_cpu kernels_internal_update_dispatch
    kernels_step_control_step_state
  CUDA_DEPS kernels_lamb_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_one_bit_lamb_cuda CUDA_ONLY
  HEADERS kernels/one_bit_lamb/one_bit_lamb_cuda.h
  CUDA_SOURCES kernels/one_bit_lamb/one_bit_lamb_cuda.cu
  DEPS kernels_one_bit_lamb_math kernels_launch_kernel kernels_internal_gpu_tile
    kernels_internal_segments kernels_internal_update_tile kernels_internal_warp
    kernels_step_control_step_state precision_float16
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_one_bit_lamb
  HEADERS kernels/one_bit_lamb/one_bit_lamb.h
  SOURCES kernels/one_bit_lamb/one_bit_lamb.cc
  DEPS kernels_one_bit_lamb_math kernels_one_bit_lamb_parameters kernels_one_bit_lamb_cpu
    device_stream device_threads_thread_pool kernels_nontemporal_store kernels_internal_cpu_list
    kernels_list_arguments precision_dtype device_status_macros kernels_value_range
    kernels_internal_enqueue_list kernels_internal_segments kernels_internal_update_cpu
    kernels_internal_update_dispatch kernels_lamb kernels_lamb_cpu kernels_lamb_tensors
    precision_float16
  CUDA_DEPS kernels_one_bit_lamb_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_reduce_cpu
  HEADERS kernels/reduce/reduce_cpu.h
  SOURCES kernels/reduce/reduce_cpu.cc
  DEPS kernels_reduce_math kernels_nontemporal_store kernels_simd kernels_cast_elements
    kernels_internal_cache_line kernels_internal_lanes
)

brigade_library(
  kernels_reduce_pool
  HEADERS kernels/reduce/reduce_pool.h
  SOURCES kernels/reduce/reduce_pool.cc
  DEPS kernels_reduce_math kernels_reduce_cpu device_threads_thread_pool kernels_nontemporal_store
    kernels_internal_cpu_list precision_dtype
  PUBLIC_LIBRARIES absl::span
)

brigade_library(
  kernels_reduce_tile
  HEADERS kernels/reduce/reduce_tile.h
  DEPS kernels_reduce_math kernels_internal_gpu_tile kernels_internal_segments
)

brigade_library(
  kernels_reduce_cuda CUDA_ONLY
  HEADERS kernels/reduce/reduce_cuda.h
  CUDA_SOURCES kernels/reduce/reduce_cuda.cu
  DEPS kernels_reduce_math kernels_reduce_tile kernels_launch_kernel
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_reduce
  HEADERS kernels/reduce/reduce.h
  SOURCES kernels/reduce/reduce.cc
  DEPS kernels_reduce_math kernels_reduce_cpu kernels_reduce_pool device_stream
    device_threads_thread_pool kernels_nontemporal_store kernels_internal_cpu_list
    kernels_list_arguments precision_dtype precision_dtype_names
  CUDA_DEPS kernels_reduce_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_sign_pack_math
  HEADERS kernels/sign_pack/sign_pack_math.h
  DEPS precision_host_device precision_rounding kernels_step_control_step_state
)

brigade_library(
  kernels_amax_math
  HEADERS kernels/amax/amax_math.h
  DEPS precision_host_device precision_rounding
)

brigade_library(
  kernels_amax_cpu
  HEADERS kernels/amax/amax_cpu.h
  SOURCES kernels/amax/amax_cpu.cc
  DEPS kernels_amax_math kernels_nontemporal_store kernels_simd precision_float16
)

brigade_library(
  kernels_amax_tile
  HEADERS kernels/amax/amax_tile.h
  DEPS kernels_amax_math kernels_internal_gpu_tile kernels_internal_segments precision_float16
)

brigade_library(
  kernels_amax_cuda CUDA_ONLY
  HEADERS kernels/amax/amax_cuda.h
  CUDA_SOURCES kernels/amax/amax_cuda.cu
  DEPS kernels_amax_math kernels_amax_tile kernels_launch_kernel
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_amax
  HEADERS kernels/amax/amax.h
  SOURCES kernels/amax/amax.cc
  DEPS kernels_amax_math kernels_amax_cpu device_stream device_threads_thread_pool
    kernels_nontemporal_store kernels_internal_cpu_list kernels_list_arguments precision_dtype
  CUDA_DEPS kernels_amax_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_cast_cpu
  HEADERS kernels/cast/cast_cpu.h
  SOURCES kernels/cast/cast_cpu.cc
  DEPS kernels_cast_math kernels_nontemporal_store kernels_simd kernels_cast_elements
    kernels_internal_cache_line kernels_internal_lanes
)

brigade_library(
  kernels_cast_pool
  HEADERS kernels/cast/cast_pool.h
  DEPS kernels_cast_math kernels_cast_cpu device_threads_thread_pool kernels_nontemporal_store
    kernels_internal_cpu_list
  PUBLIC_LIBRARIES absl::span
)

brigade_library(
  kernels_cast_tile
  HEADERS kernels/cast/cast_tile.h
  DEPS kernels_cast_math kernels_internal_gpu_tile kernels_internal_segments
)

brigade_library(
  kernels_cast_cuda CUDA_ONLY
  HEADERS kernels/cast/cast_cuda.h
  CUDA_SOURCES kernels/cast/cast_cuda.cu
  DEPS kernels_cast_math kernels_cast_tile kernels_launch_kernel
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_cast
  HEADERS kernels/cast/cast.h kernels/cast/cast_list.h
  SOURCES kernels/cast/cast.cc
  DEPS kernels_cast_math kernels_cast_cpu kernels_cast_pool device_stream device_threads_thread_pool
    kernels_nontemporal_store kernels_internal_cpu_list kernels_list_arguments precision_dtype
    kernels_internal_enqueue_list
  CUDA_DEPS kernels_cast_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_orthogonalize_math
  HEADERS kernels/orthogonalize/orthogonalize_math.h
  DEPS precision_host_device precision_rounding
)

brigade_library(
  kernels_orthogonalize_row_lanes
  HEADERS kernels/orthogonalize/row_lanes.h
  DEPS kernels_orthogonalize_math kernels_simd kernels_internal_lanes precision_rounding
)

brigade_library(
  kernels_orthogonalize_cpu
  HEADERS kernels/orthogonalize/orthogonalize_cpu.h
  SOURCES kernels/orthogonalize/orthogonalize_cpu.cc
  DEPS kernels_orthogonalize_math kernels_nontemporal_store kernels_simd
    kernels_orthogonalize_row_lanes kernels_internal_cache_line kernels_internal_halve_lanes
    precision_rounding
)

brigade_library(
  kernels_orthogonalize_cuda CUDA_ONLY
  HEADERS kernels/orthogonalize/orthogonalize_cuda.h
  CUDA_SOURCES kernels/orthogonalize/orthogonalize_cuda.cu
  DEPS kernels_orthogonalize_math kernels_launch_kernel kernels_internal_gpu_tile
    kernels_internal_segments kernels_internal_warp
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_orthogonalize
  HEADERS kernels/orthogonalize/orthogonalize.h
  SOURCES kernels/orthogonalize/orthogonalize.cc
  DEPS kernels_orthogonalize_math kernels_orthogonalize_cpu device_stream device_threads_thread_pool
    kernels_nontemporal_store kernels_internal_cpu_list kernels_list_arguments precision_dtype
    kernels_value_range kernels_internal_enqueue_list
  CUDA_DEPS kernels_orthogonalize_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_block_quant_math
  HEADERS kernels/block_quant/block_quant_math.h
  DEPS precision_host_device precision_rounding
)

brigade_library(
  kernels_block_quant_quant_blocks
  HEADERS kernels/block_quant/quant_blocks.h kernels/block_quant/quant_lanes.h
  DEPS kernels_block_quant_math kernels_simd kernels_internal_cache_line kernels_internal_lanes
    precision_float16
)

brigade_library(
  kernels_block_quant_cpu
  HEADERS kernels/block_quant/block_quant_cpu.h
  SOURCES kernels/block_quant/block_quant_cpu.cc
  DEPS kernels_block_quant_math kernels_nontemporal_store kernels_simd
    kernels_block_quant_quant_blocks precision_float16
)

brigade_library(
  kernels_internal_gpu_blocks
  HEADERS kernels/internal/gpu_blocks.h
  DEPS kernels_internal_gpu_tile kernels_internal_segments precision_host_device
)

brigade_library(
  kernels_block_quant_quant_pack
  HEADERS kernels/block_quant/quant_pack.h
  DEPS kernels_block_quant_math kernels_internal_gpu_blocks kernels_internal_gpu_tile
    precision_float16
)

brigade_library(
  kernels_block_quant_tile
  HEADERS kernels/block_quant/block_quant_tile.h
  DEPS kernels_block_quant_math kernels_internal_gpu_tile kernels_internal_segments
    kernels_block_quant_quant_pack kernels_internal_gpu_blocks
)

brigade_library(
  kernels_block_quant_cuda CUDA_ONLY
  HEADERS kernels/block_quant/block_quant_cuda.h
  CUDA_SOURCES kernels/block_quant/block_quant_cuda.cu
  DEPS kernels_block_quant_math kernels_block_quant_tile kernels_launch_kernel kernels_internal_warp
    precision_float16
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_block_quant
  HEADERS kernels/block_quant/block_quant.h
  SOURCES kernels/block_quant/block_quant.cc
  DEPS kernels_block_quant_math kernels_block_quant_cpu device_stream device_threads_thread_pool
    kernels_nontemporal_store kernels_internal_cpu_list kernels_list_arguments precision_dtype
    kernels_internal_enqueue_list
  CUDA_DEPS kernels_block_quant_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status absl::strings
)

brigade_library(
  kernels_grad_check_math
  HEADERS kernels/grad_check/grad_check_math.h
  DEPS precision_host_device precision_rounding kernels_step_control_step_state
)

brigade_library(
  kernels_grad_check_sum_squares_avx512
  HEADERS kernels/grad_check/sum_squares_avx512.h
  DEPS kernels_grad_check_math precision_float16
)

brigade_library(
  kernels_grad_check_cpu
  HEADERS kernels/grad_check/grad_check_cpu.h
  SOURCES kernels/grad_check/grad_check_cpu.cc
  DEPS kernels_grad_check_math kernels_nontemporal_store kernels_simd
    kernels_grad_check_sum_squares_avx512 precision_float16
  PRIVATE_LIBRARIES hwy::hwy
)

brigade_library(
  kernels_grad_check_tile
  HEADERS kernels/grad_check/grad_check_tile.h
  DEPS kernels_grad_check_math kernels_internal_gpu_tile kernels_internal_segments precision_float16
)

brigade_library(
  kernels_grad_check_cuda CUDA_ONLY
  HEADERS kernels/grad_check/grad_check_cuda.h
  CUDA_SOURCES kernels/grad_check/grad_check_cuda.cu
  DEPS kernels_grad_check_math kernels_grad_check_tile kernels_launch_kernel kernels_internal_warp
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_grad_check
  HEADERS kernels/grad_check/grad_check.h
  SOURCES kernels/grad_check/grad_check.cc
  DEPS kernels_grad_check_math kernels_grad_check_cpu device_stream device_threads_thread_pool
    kernels_nontemporal_store kernels_internal_cpu_list kernels_list_arguments precision_dtype
    kernels_internal_enqueue_list kernels_step_control_step_state
  CUDA_DEPS kernels_grad_check_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_zero_one_adam_math
  HEADERS kernels/zero_one_adam/zero_one_adam_math.h
  DEPS precision_host_device precision_rounding kernels_step_control_step_state
)

brigade_library(
  kernels_adam_parameters
  HEADERS kernels/adam/adam_parameters.h
  DEPS kernels_adam_math kernels_weight_decay kernels_step_control_math
)

brigade_library(
  kernels_internal_update_range
  HEADERS kernels/internal/update_range.h
  DEPS kernels_internal_cache_line kernels_internal_lanes kernels_simd kernels_update_types
    kernels_cast_elements kernels_step_control_step_state
)

brigade_library(
  kernels_adam_cpu
  HEADERS kernels/adam/adam_cpu.h
  SOURCES kernels/adam/adam_cpu.cc
  DEPS kernels_adam_math kernels_nontemporal_store kernels_simd kernels_internal_update_range
)

brigade_library(
  kernels_adam_cuda CUDA_ONLY
  HEADERS kernels/adam/adam_cuda.h
  CUDA_SOURCES kernels/adam/adam_cuda.cu
  DEPS kernels_adam_math kernels_launch_kernel kernels_internal_update_tile
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_adam
  HEADERS kernels/adam/adam.h
  SOURCES kernels/adam/adam.cc
  DEPS kernels_adam_math kernels_adam_parameters kernels_adam_cpu device_stream
    device_threads_thread_pool kernels_nontemporal_store kernels_internal_cpu_list
    kernels_list_arguments precision_dtype kernels_value_range kernels_weight_decay
    kernels_internal_enqueue_update kernels_internal_update_dispatch kernels_step_control_step_state
  CUDA_DEPS kernels_adam_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status absl::strings
)

brigade_library(
  kernels_adam8_parameters
  HEADERS kernels/adam8/adam8_parameters.h
  DEPS kernels_adam8_math kernels_weight_decay kernels_adam_parameters
)

brigade_library(
  kernels_adam8_lanes
  HEADERS kernels/adam8/adam8_lanes.h
  DEPS kernels_adam8_math kernels_simd kernels_internal_lanes
)

brigade_library(
  kernels_adam8_bytes
  HEADERS kernels/adam8/adam8_bytes.h
  DEPS kernels_adam8_lanes kernels_adam8_math kernels_internal_lanes
)

brigade_library(
  kernels_adam8_cpu
  HEADERS kernels/adam8/adam8_cpu.h
  SOURCES kernels/adam8/adam8_cpu.cc
  DEPS kernels_adam8_math kernels_nontemporal_store kernels_simd kernels_adam8_bytes
    kernels_adam8_lanes kernels_update_types kernels_cast_elements kernels_internal_lanes
    kernels_step_control_step_state precision_float16
)

brigade_library(
  kernels_adam8_tile
  HEADERS kernels/adam8/adam8_tile.h
  DEPS kernels_adam8_math kernels_internal_gpu_tile kernels_internal_segments kernels_update_types
    kernels_internal_gpu_blocks kernels_internal_update_tile kernels_step_control_step_state
)

brigade_library(
  kernels_adam8_cuda CUDA_ONLY
  HEADERS kernels/adam8/adam8_cuda.h
  CUDA_SOURCES kernels/adam8/adam8_cuda.cu
  DEPS kernels_adam8_math kernels_adam8_tile kernels_launch_kernel kernels_update_types
    kernels_internal_gpu_blocks kernels_internal_segments kernels_internal_warp
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_adam8
  HEADERS kernels/adam8/adam8.h
  SOURCES kernels/adam8/adam8.cc
  DEPS kernels_adam8_math kernels_adam8_parameters kernels_adam8_cpu device_stream
    device_threads_thread_pool kernels_nontemporal_store kernels_internal_cpu_list
    kernels_list_arguments precision_dtype kernels_adam kernels_internal_enqueue_update
    kernels_internal_update_dispatch
  CUDA_DEPS kernels_adam8_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
)

brigade_library(
  kernels_lion_math
  HEADERS kernels/lion/lion_math.h
  DEPS precision_host_device precision_rounding kernels_step_control_step_state
)

brigade_library(
  kernels_lion_parameters
  HEADERS kernels/lion/lion_parameters.h
  DEPS kernels_lion_math kernels_weight_decay
)

brigade_library(
  kernels_lion_cpu
  HEADERS kernels/lion/lion_cpu.h
  SOURCES kernels/lion/lion_cpu.cc
  DEPS kernels_lion_math kernels_nontemporal_store kernels_simd kernels_internal_update_range
)

brigade_library(
  kernels_lion_cuda CUDA_ONLY
  HEADERS kernels/lion/lion_cuda.h
  CUDA_SOURCES kernels/lion/lion_cuda.cu
  DEPS kernels_lion_math kernels_launch_kernel kernels_internal_update_tile
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_lion
  HEADERS kernels/lion/lion.h
  SOURCES kernels/lion/lion.cc
  DEPS kernels_lion_math kernels_lion_parameters kernels_lion_cpu device_stream
    device_threads_thread_pool kernels_nontemporal_store kernels_internal_cpu_list
    kernels_list_arguments precision_dtype kernels_value_range kernels_internal_enqueue_update
    kernels_internal_update_dispatch kernels_step_control_step_state
  CUDA_DEPS kernels_lion_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
)

brigade_library(
  kernels_sgd_math
  HEADERS kernels/sgd/sgd_math.h
  DEPS precision_host_device precision_rounding kernels_step_control_step_state
)

brigade_library(
  kernels_sgd_parameters
  HEADERS kernels/sgd/sgd_parameters.h
  DEPS kernels_sgd_math kernels_weight_decay
)

brigade_library(
  kernels_sgd_cpu
  HEADERS kernels/sgd/sgd_cpu.h
  SOURCES kernels/sgd/sgd_cpu.cc
  DEPS kernels_sgd_math kernels_nontemporal_store kernels_simd kernels_internal_update_range
)

brigade_library(
  kernels_sgd_cuda CUDA_ONLY
  HEADERS kernels/sgd/sgd_cuda.h
  CUDA_SOURCES kernels/sgd/sgd_cuda.cu
  DEPS kernels_sgd_math kernels_launch_kernel kernels_internal_update_tile
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_sgd
  HEADERS kernels/sgd/sgd.h
  SOURCES kernels/sgd/sgd.cc
  DEPS kernels_sgd_math kernels_sgd_parameters kernels_sgd_cpu device_stream
    device_threads_thread_pool kernels_nontemporal_store kernels_internal_cpu_list
    kernels_list_arguments precision_dtype kernels_value_range kernels_weight_decay
    kernels_internal_enqueue_update kernels_internal_update_dispatch kernels_step_control_step_state
  CUDA_DEPS kernels_sgd_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_sign_pack_sign_lanes
  HEADERS kernels/sign_pack/sign_lanes.h
  DEPS kernels_internal_lanes
)

brigade_library(
  kernels_sign_pack_cpu
  HEADERS kernels/sign_pack/sign_pack_cpu.h
  SOURCES kernels/sign_pack/sign_pack_cpu.cc
  DEPS kernels_sign_pack_math kernels_nontemporal_store kernels_simd kernels_sign_pack_sign_lanes
    kernels_grad_check_cpu kernels_grad_check_math kernels_internal_cache_line precision_float16
    precision_rounding
)

brigade_library(
  kernels_internal_contributions
  HEADERS kernels/internal/contributions.h
  DEPS device_status_macros kernels_list_arguments
  PUBLIC_LIBRARIES absl::span absl::status absl::strings
)

brigade_library(
  kernels_sign_pack_cuda CUDA_ONLY
  HEADERS kernels/sign_pack/sign_pack_cuda.h
  CUDA_SOURCES kernels/sign_pack/sign_pack_cuda.cu
  DEPS kernels_sign_pack_math kernels_launch_kernel kernels_grad_check_cuda kernels_grad_check_tile
    kernels_internal_gpu_blocks kernels_internal_warp precision_float16
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_sign_pack
  HEADERS kernels/sign_pack/sign_pack.h
  SOURCES kernels/sign_pack/sign_pack.cc
  DEPS kernels_sign_pack_math kernels_sign_pack_cpu device_stream device_threads_thread_pool
    kernels_nontemporal_store kernels_internal_cpu_list kernels_list_arguments precision_dtype
    kernels_grad_check_cpu kernels_internal_contributions kernels_internal_enqueue_list
  CUDA_DEPS kernels_sign_pack_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_fill_math
  HEADERS kernels/fill/fill_math.h
  DEPS precision_host_device precision_rounding
)

brigade_library(
  kernels_fill_cpu
  HEADERS kernels/fill/fill_cpu.h
  SOURCES kernels/fill/fill_cpu.cc
  DEPS kernels_fill_math kernels_nontemporal_store kernels_simd
)

brigade_library(
  kernels_fill_tile
  HEADERS kernels/fill/fill_tile.h
  DEPS kernels_fill_math kernels_internal_gpu_tile kernels_internal_segments
)

brigade_library(
  kernels_fill_cuda CUDA_ONLY
  HEADERS kernels/fill/fill_cuda.h
  CUDA_SOURCES kernels/fill/fill_cuda.cu
  DEPS kernels_fill_math kernels_fill_tile kernels_launch_kernel
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_fill
  HEADERS kernels/fill/fill.h
  SOURCES kernels/fill/fill.cc
  DEPS kernels_fill_math kernels_fill_cpu device_stream device_threads_thread_pool
    kernels_nontemporal_store kernels_internal_cpu_list kernels_list_arguments precision_dtype
    kernels_internal_enqueue_list precision_dtype_names
  CUDA_DEPS kernels_fill_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_top_k_math
  HEADERS kernels/top_k/top_k_math.h
  DEPS precision_host_device precision_rounding precision_float16
)

brigade_library(
  kernels_top_k_key_lanes
  HEADERS kernels/top_k/key_lanes.h
  DEPS kernels_top_k_math kernels_simd kernels_internal_cache_line kernels_internal_lanes
    precision_float16
)

brigade_library(
  kernels_top_k_cpu
  HEADERS kernels/top_k/top_k_cpu.h
  SOURCES kernels/top_k/top_k_cpu.cc
  DEPS kernels_top_k_math kernels_nontemporal_store kernels_simd kernels_top_k_key_lanes
    kernels_internal_lanes precision_float16
)

brigade_library(
  kernels_top_k_cuda CUDA_ONLY
  HEADERS kernels/top_k/top_k_cuda.h
  CUDA_SOURCES kernels/top_k/top_k_cuda.cu
  DEPS kernels_top_k_math kernels_launch_kernel kernels_internal_gpu_tile kernels_internal_segments
    precision_float16
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_top_k
  HEADERS kernels/top_k/top_k.h
  SOURCES kernels/top_k/top_k.cc
  DEPS kernels_top_k_math kernels_top_k_cpu device_stream device_threads_thread_pool
    kernels_nontemporal_store kernels_internal_cpu_list kernels_list_arguments precision_dtype
    kernels_internal_enqueue_list
  CUDA_DEPS kernels_top_k_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_dequant_reduce_math
  HEADERS kernels/dequant_reduce/dequant_reduce_math.h
  DEPS precision_host_device precision_rounding kernels_block_quant_math precision_float16
)

brigade_library(
  kernels_dequant_reduce_cpu
  HEADERS kernels/dequant_reduce/dequant_reduce_cpu.h
  SOURCES kernels/dequant_reduce/dequant_reduce_cpu.cc
  DEPS kernels_dequant_reduce_math kernels_nontemporal_store kernels_simd
    kernels_block_quant_quant_blocks kernels_internal_cache_line
)

brigade_library(
  kernels_dequant_reduce_tile
  HEADERS kernels/dequant_reduce/dequant_reduce_tile.h
  DEPS kernels_dequant_reduce_math kernels_internal_gpu_tile kernels_internal_segments
    kernels_block_quant_quant_pack kernels_internal_gpu_blocks
)

brigade_library(
  kernels_dequant_reduce_cuda CUDA_ONLY
  HEADERS kernels/dequant_reduce/dequant_reduce_cuda.h
  CUDA_SOURCES kernels/dequant_reduce/dequant_reduce_cuda.cu
  DEPS kernels_dequant_reduce_math kernels_dequant_reduce_tile kernels_launch_kernel
    kernels_internal_warp
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_dequant_reduce
  HEADERS kernels/dequant_reduce/dequant_reduce.h
  SOURCES kernels/dequant_reduce/dequant_reduce.cc
  DEPS kernels_dequant_reduce_math kernels_dequant_reduce_cpu device_stream
    device_threads_thread_pool kernels_nontemporal_store kernels_internal_cpu_list
    kernels_list_arguments precision_dtype kernels_block_quant kernels_internal_contributions
    kernels_internal_enqueue_list
  CUDA_DEPS kernels_dequant_reduce_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
)

brigade_library(
  kernels_loco_quant_math
  HEADERS kernels/loco_quant/loco_quant_math.h
  DEPS precision_host_device precision_rounding kernels_block_quant_math
)

brigade_library(
  kernels_loco_quant_cpu
  HEADERS kernels/loco_quant/loco_quant_cpu.h
  SOURCES kernels/loco_quant/loco_quant_cpu.cc
  DEPS kernels_loco_quant_math kernels_nontemporal_store kernels_simd
    kernels_block_quant_quant_blocks kernels_internal_cache_line kernels_internal_lanes
    precision_float16
)

brigade_library(
  kernels_loco_quant_tile
  HEADERS kernels/loco_quant/loco_quant_tile.h
  DEPS kernels_loco_quant_math kernels_internal_gpu_tile kernels_internal_segments
    kernels_block_quant_quant_pack kernels_internal_gpu_blocks
)

brigade_library(
  kernels_loco_quant_cuda CUDA_ONLY
  HEADERS kernels/loco_quant/loco_quant_cuda.h
  CUDA_SOURCES kernels/loco_quant/loco_quant_cuda.cu
  DEPS kernels_loco_quant_math kernels_loco_quant_tile kernels_launch_kernel kernels_internal_warp
    precision_float16
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_loco_quant
  HEADERS kernels/loco_quant/loco_quant.h
  SOURCES kernels/loco_quant/loco_quant.cc
  DEPS kernels_loco_quant_math kernels_loco_quant_cpu device_stream device_threads_thread_pool
    kernels_nontemporal_store kernels_internal_cpu_list kernels_list_arguments precision_dtype
    kernels_value_range kernels_block_quant kernels_internal_enqueue_list
  CUDA_DEPS kernels_loco_quant_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
)

brigade_library(
  kernels_muon_product_lanes
  HEADERS kernels/muon/product_lanes.h
  DEPS kernels_simd kernels_internal_lanes precision_rounding
)

brigade_library(
  kernels_muon_cpu
  HEADERS kernels/muon/muon_cpu.h
  SOURCES kernels/muon/muon_cpu.cc
  DEPS kernels_muon_math kernels_nontemporal_store kernels_simd kernels_muon_product_lanes
    kernels_update_types kernels_internal_halve_lanes kernels_internal_lanes
    kernels_internal_update_range kernels_step_control_step_state
)

brigade_library(
  kernels_muon_cuda CUDA_ONLY
  HEADERS kernels/muon/muon_cuda.h
  CUDA_SOURCES kernels/muon/muon_cuda.cu
  DEPS kernels_muon_math kernels_launch_kernel kernels_internal_segments
    kernels_internal_update_tile
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_muon
  HEADERS kernels/muon/muon.h
  SOURCES kernels/muon/muon.cc
  DEPS kernels_muon_math kernels_muon_parameters kernels_muon_cpu device_stream
    device_threads_thread_pool kernels_nontemporal_store kernels_internal_cpu_list
    kernels_list_arguments precision_dtype kernels_value_range kernels_internal_enqueue_list
    kernels_internal_enqueue_update kernels_internal_matrix_shape kernels_internal_update_dispatch
    kernels_step_control_step_state
  CUDA_DEPS kernels_muon_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_zero_one_adam_parameters
  HEADERS kernels/zero_one_adam/zero_one_adam_parameters.h
  DEPS kernels_zero_one_adam_math kernels_weight_decay kernels_adam_parameters
)

brigade_library(
  kernels_zero_one_adam_cpu
  HEADERS kernels/zero_one_adam/zero_one_adam_cpu.h
  SOURCES kernels/zero_one_adam/zero_one_adam_cpu.cc
  DEPS kernels_zero_one_adam_math kernels_nontemporal_store kernels_simd
)

brigade_library(
  kernels_zero_one_adam_cuda CUDA_ONLY
  HEADERS kernels/zero_one_adam/zero_one_adam_cuda.h
  CUDA_SOURCES kernels/zero_one_adam/zero_one_adam_cuda.cu
  DEPS kernels_zero_one_adam_math kernels_launch_kernel kernels_internal_gpu_tile
    kernels_internal_segments kernels_internal_update_tile
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_zero_one_adam
  HEADERS kernels/zero_one_adam/zero_one_adam.h
  SOURCES kernels/zero_one_adam/zero_one_adam.cc
  DEPS kernels_zero_one_adam_math kernels_zero_one_adam_parameters kernels_zero_one_adam_cpu
    device_stream device_threads_thread_pool kernels_nontemporal_store kernels_internal_cpu_list
    kernels_list_arguments precision_dtype device_status_macros kernels_internal_enqueue_list
  CUDA_DEPS kernels_zero_one_adam_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_digest_math
  HEADERS kernels/digest/digest_math.h
  DEPS precision_host_device precision_rounding
)

brigade_library(
  kernels_digest_cpu
  HEADERS kernels/digest/digest_cpu.h
  SOURCES kernels/digest/digest_cpu.cc
  DEPS kernels_digest_math kernels_nontemporal_store kernels_simd
)

brigade_library(
  kernels_digest_tile
  HEADERS kernels/digest/digest_tile.h
  DEPS kernels_digest_math kernels_internal_gpu_tile kernels_internal_segments
)

brigade_library(
  kernels_digest_cuda CUDA_ONLY
  HEADERS kernels/digest/digest_cuda.h
  CUDA_SOURCES kernels/digest/digest_cuda.cu
  DEPS kernels_digest_math kernels_digest_tile kernels_launch_kernel
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  kernels_digest
  HEADERS kernels/digest/digest.h
  SOURCES kernels/digest/digest.cc
  DEPS kernels_digest_math kernels_digest_cpu device_stream device_threads_thread_pool
    kernels_nontemporal_store kernels_internal_cpu_list kernels_list_arguments precision_dtype
    kernels_internal_enqueue_list
  CUDA_DEPS kernels_digest_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels_flatten
  HEADERS kernels/flatten/flatten.h
  SOURCES kernels/flatten/flatten.cc
  DEPS device_stream device_threads_thread_pool kernels_nontemporal_store kernels_internal_cpu_list
    kernels_list_arguments precision_dtype kernels_cast
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  kernels
  DEPS kernels_flatten kernels_adafactor kernels_adam kernels_adam8 kernels_amax kernels_block_quant
    kernels_cast kernels_dequant_reduce kernels_digest kernels_fill kernels_grad_check kernels_lamb
    kernels_lion kernels_loco_quant kernels_muon kernels_one_bit_lamb kernels_orthogonalize
    kernels_reduce kernels_sgd kernels_sign_pack kernels_step_control kernels_top_k
    kernels_zero_one_adam
)
