# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  checkpoint_durable_file
  HEADERS checkpoint/durable_file.h
  SOURCES checkpoint/durable_file.cc
  DEPS device_printable device_file_system_calls
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  checkpoint_folder
  HEADERS checkpoint/checkpoint_folder.h
  SOURCES checkpoint/checkpoint_folder.cc
  DEPS checkpoint_durable_file device_status_macros device_file_system_calls
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
  PRIVATE_LIBRARIES absl::algorithm_container absl::str_format
)

brigade_library(
  checkpoint_fields
  HEADERS checkpoint/fields.h
  SOURCES checkpoint/fields.cc
  DEPS collectives_options device_printable device_status_macros kernels_step_control_step_state
    optim_loss_scaler optim_parameter_group optim_schedule precision_dtype zero_options zero_plan
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::strings
)

brigade_library(
  checkpoint_model_part
  HEADERS checkpoint/model_part.h
  SOURCES checkpoint/model_part.cc
  DEPS parallel_shard zero_plan
  PUBLIC_LIBRARIES absl::span
  PRIVATE_LIBRARIES absl::flat_hash_map absl::strings
)

brigade_library(
  checkpoint_strict_json
  HEADERS checkpoint/strict_json.h
  SOURCES checkpoint/strict_json.cc
  DEPS device_printable device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings nlohmann_json::nlohmann_json
)

brigade_library(
  checkpoint_safetensors
  HEADERS checkpoint/safetensors.h
  SOURCES checkpoint/safetensors.cc
  DEPS checkpoint_strict_json device_printable device_status_macros precision_dtype
  PUBLIC_LIBRARIES absl::function_ref absl::status absl::statusor absl::strings
)

brigade_library(
  checkpoint_layout
  HEADERS checkpoint/layout.h
  SOURCES checkpoint/layout.cc
  DEPS checkpoint_model_part checkpoint_safetensors device_status_macros precision_dtype zero_plan
  PUBLIC_LIBRARIES absl::span absl::statusor
  PRIVATE_LIBRARIES absl::status absl::str_format absl::strings nlohmann_json::nlohmann_json
)

brigade_library(
  checkpoint_manifest
  HEADERS checkpoint/manifest.h checkpoint/manifest_format.h
  SOURCES checkpoint/manifest.cc checkpoint/manifest_parser.cc
  DEPS checkpoint_fields checkpoint_strict_json device_printable device_status_macros
    device_file_crc32c
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
  PRIVATE_LIBRARIES absl::str_format
)

brigade_library(
  checkpoint_weight_index
  HEADERS checkpoint/weight_index.h
  SOURCES checkpoint/weight_index.cc
  DEPS checkpoint_manifest checkpoint_safetensors checkpoint_strict_json device_printable
    device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  checkpoint_reader
  HEADERS checkpoint/checkpoint_reader.h
  SOURCES checkpoint/checkpoint_reader.cc
  DEPS checkpoint_folder checkpoint_durable_file checkpoint_manifest checkpoint_safetensors
    checkpoint_weight_index device_printable device_status_macros device_file_crc32c
    device_file_system_calls
  PUBLIC_LIBRARIES absl::function_ref absl::status absl::statusor absl::strings
  PRIVATE_LIBRARIES absl::str_format
)

brigade_library(
  checkpoint_check_part
  HEADERS checkpoint/check_part.h
  SOURCES checkpoint/check_part.cc
  DEPS checkpoint_fields checkpoint_model_part collectives_agree collectives_communicator
    device_printable device_status_macros zero_optimizer
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  checkpoint_tensor_sums
  HEADERS checkpoint/tensor_sums.h
  SOURCES checkpoint/tensor_sums.cc
  DEPS checkpoint_layout collectives_agree collectives_communicator device_status_macros
    device_file_crc32c
  PUBLIC_LIBRARIES absl::statusor absl::strings
  PRIVATE_LIBRARIES absl::status
)

brigade_library(
  checkpoint_loader
  HEADERS checkpoint/loader.h
  SOURCES checkpoint/loader.cc
  DEPS checkpoint_folder checkpoint_reader checkpoint_durable_file checkpoint_fields
    checkpoint_layout checkpoint_manifest checkpoint_model_part checkpoint_check_part
    checkpoint_tensor_sums collectives_agree collectives_communicator device_printable
    device_status_macros device_file_system_calls kernels_step_control_step_state
    optim_step_controller precision_dtype zero_optimizer
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::span absl::status absl::strings
)

brigade_library(
  checkpoint_joint_work
  HEADERS checkpoint/joint_work.h
  SOURCES checkpoint/joint_work.cc
  DEPS collectives_agree collectives_communicator device_status_macros device_threads_task_thread
  PUBLIC_LIBRARIES absl::function_ref absl::status absl::statusor
  PRIVATE_LIBRARIES absl::memory absl::strings absl::time
)

brigade_library(
  checkpoint_folder_lock
  HEADERS checkpoint/folder_lock.h
  SOURCES checkpoint/folder_lock.cc
  DEPS checkpoint_durable_file device_file_system_calls
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings absl::time
)

brigade_library(
  checkpoint_staging
  HEADERS checkpoint/staging.h
  SOURCES checkpoint/staging.cc
  DEPS checkpoint_layout device_buffer device_context device_event device_status_macros
    device_stream kernels_step_control_step_state optim_step_controller precision_dtype
    zero_optimizer
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
)

brigade_library(
  checkpoint_write_mode
  HEADERS checkpoint/write_mode.h
)

brigade_library(
  checkpoint_rank_files
  HEADERS checkpoint/rank_files.h
  SOURCES checkpoint/rank_files.cc
  DEPS checkpoint_folder checkpoint_durable_file checkpoint_folder_lock checkpoint_layout
    checkpoint_manifest checkpoint_staging checkpoint_tensor_sums checkpoint_weight_index
    checkpoint_write_mode collectives_agree collectives_communicator device_status_macros
    device_file_crc32c device_file_system_calls
  PUBLIC_LIBRARIES absl::function_ref absl::status absl::statusor absl::strings
  PRIVATE_LIBRARIES absl::algorithm_container absl::str_format
)

brigade_library(
  checkpoint_saver
  HEADERS checkpoint/saver.h
  SOURCES checkpoint/saver.cc
  DEPS checkpoint_folder checkpoint_fields checkpoint_joint_work checkpoint_layout
    checkpoint_manifest checkpoint_model_part checkpoint_rank_files checkpoint_check_part
    checkpoint_staging checkpoint_weight_index checkpoint_write_mode collectives_agree
    collectives_communicator device_context device_status_macros device_file_crc32c
    device_file_system_calls device_threads_mutex device_threads_task_thread
    kernels_step_control_step_state optim_parameter_group optim_step_controller zero_optimizer
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::core_headers absl::span absl::str_format absl::strings
)

brigade_library(
  checkpoint_weight_files
  HEADERS checkpoint/weight_files.h
  SOURCES checkpoint/weight_files.cc
  DEPS checkpoint_folder checkpoint_reader checkpoint_durable_file checkpoint_safetensors
    checkpoint_weight_index device_status_macros device_file_system_calls device_threads_mutex
  PUBLIC_LIBRARIES absl::core_headers absl::status absl::statusor absl::strings
  PRIVATE_LIBRARIES absl::algorithm_container
)

brigade_library(
  checkpoint_weights
  HEADERS checkpoint/weights.h
  SOURCES checkpoint/weights.cc
  DEPS checkpoint_durable_file checkpoint_model_part checkpoint_check_part checkpoint_safetensors
    checkpoint_weight_files collectives_agree collectives_communicator device_printable
    device_status_macros device_file_system_calls precision_dtype zero_optimizer zero_plan
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  checkpoint
  DEPS checkpoint_folder checkpoint_fields checkpoint_layout checkpoint_loader checkpoint_manifest
    checkpoint_model_part checkpoint_safetensors checkpoint_saver checkpoint_weight_files
    checkpoint_weight_index checkpoint_weights checkpoint_write_mode
)
