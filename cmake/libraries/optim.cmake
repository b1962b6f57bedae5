# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  optim_loss_scaler
  HEADERS optim/loss_scaler.h
  SOURCES optim/loss_scaler.cc
  DEPS device_status_macros kernels_value_range kernels_step_control
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  optim_schedule
  HEADERS optim/schedule.h
  SOURCES optim/schedule.cc
  DEPS device_status_macros kernels_value_range precision_rounding
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  optim_zero_one_schedule
  HEADERS optim/zero_one_schedule.h
)

brigade_library(
  optim_parameter_group
  HEADERS optim/parameter_group.h
  SOURCES optim/parameter_group.cc
  DEPS optim_schedule optim_zero_one_schedule device_status_macros kernels_value_range
    kernels_adam8_math kernels_lamb_math kernels_adafactor kernels_adafactor_parameters
    kernels_muon_math kernels_muon_parameters kernels_one_bit_lamb kernels_step_control_math
    precision_dtype
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  optim_step_controller
  HEADERS optim/step_controller.h
  SOURCES optim/step_controller.cc
  DEPS optim_loss_scaler optim_parameter_group optim_schedule device_buffer device_context
    device_event device_status_macros device_stream kernels_value_range kernels_cast
    kernels_step_control kernels_step_control_step_state precision_dtype
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  optim_fused_update
  HEADERS optim/fused_update.h
  SOURCES optim/fused_update.cc
  DEPS optim_parameter_group optim_step_controller device_stream kernels_weight_decay kernels_adam
    kernels_adam8 kernels_lamb_math kernels_lion kernels_sgd precision_dtype
  PUBLIC_LIBRARIES absl::status absl::statusor
)

brigade_library(
  optim_lamb_update
  HEADERS optim/lamb_update.h
  SOURCES optim/lamb_update.cc
  DEPS optim_fused_update optim_parameter_group optim_step_controller device_buffer device_context
    device_status_macros device_stream kernels_lamb kernels_one_bit_lamb
  PUBLIC_LIBRARIES absl::function_ref absl::span absl::status absl::statusor
)

brigade_library(
  optim_step_executor
  HEADERS optim/step_executor.h
  SOURCES optim/step_executor.cc
  DEPS optim_fused_update optim_lamb_update optim_parameter_group optim_step_controller
    device_buffer device_context device_status_macros device_stream kernels_grad_check
    kernels_grad_check_math kernels_step_control_step_state precision_dtype
  PUBLIC_LIBRARIES absl::function_ref absl::span absl::status absl::statusor
)

brigade_library(
  optim_freeze_moment_cuda CUDA_ONLY
  HEADERS optim/freeze_moment_cuda.h
  CUDA_SOURCES optim/freeze_moment_cuda.cu
  DEPS kernels_launch_kernel
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  optim_freeze_moment
  HEADERS optim/freeze_moment.h
  SOURCES optim/freeze_moment.cc
  DEPS device_status_macros device_stream kernels_list_arguments precision_rounding
  CUDA_DEPS optim_freeze_moment_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::status
)

brigade_library(
  optim_limit_stats_math
  HEADERS optim/limit_stats_math.h
  DEPS kernels_step_control_step_state precision_host_device precision_rounding
)

brigade_library(
  optim_limit_stats_cuda CUDA_ONLY
  HEADERS optim/limit_stats_cuda.h
  CUDA_SOURCES optim/limit_stats_cuda.cu
  DEPS optim_limit_stats_math kernels_launch_kernel
  CUDA_LIBRARIES CUDA::toolkit CUDA::cudart_static
)

brigade_library(
  optim_limit_stats
  HEADERS optim/limit_stats.h
  SOURCES optim/limit_stats.cc
  DEPS optim_limit_stats_math device_status_macros device_stream kernels_list_arguments
    kernels_value_range kernels_step_control_step_state
  CUDA_DEPS optim_limit_stats_cuda device_cuda_status
  PUBLIC_LIBRARIES absl::span absl::status
)

brigade_library(
  optim_one_bit_lamb_update
  HEADERS optim/one_bit_lamb_update.h
  SOURCES optim/one_bit_lamb_update.cc
  DEPS optim_fused_update optim_lamb_update optim_parameter_group optim_step_controller
    device_buffer device_context device_status_macros device_stream kernels_lamb
    kernels_one_bit_lamb
  PUBLIC_LIBRARIES absl::function_ref absl::span absl::status absl::statusor
)

brigade_library(
  optim_mixed_precision_optimizer
  HEADERS optim/mixed_precision_optimizer.h
  SOURCES optim/mixed_precision_optimizer.cc
  DEPS optim_fused_update optim_loss_scaler optim_parameter_group optim_step_controller
    optim_step_executor device_buffer device_context device_status_macros device_stream
    kernels_list_arguments kernels_value_range kernels_cast kernels_cast_math
    kernels_step_control_step_state precision_dtype
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  optim
  DEPS optim_freeze_moment optim_fused_update optim_lamb_update optim_limit_stats optim_loss_scaler
    optim_mixed_precision_optimizer optim_one_bit_lamb_update optim_parameter_group optim_schedule
    optim_step_controller optim_step_executor optim_zero_one_schedule
)
