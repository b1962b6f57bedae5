# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  models_config
  HEADERS models/config.h
  SOURCES models/config.cc
  DEPS checkpoint_durable_file checkpoint_strict_json device_printable device_status_macros
    device_file_system_calls nn_attention nn_formulas nn_rotary
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
  PRIVATE_LIBRARIES nlohmann_json::nlohmann_json
)

brigade_library(
  models_module_pattern
  HEADERS models/module_pattern.h
  SOURCES models/module_pattern.cc
  DEPS device_printable device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  models_lora
  HEADERS models/lora.h
  SOURCES models/lora.cc
  DEPS models_config models_module_pattern device_printable device_status_macros kernels_block_quant
    nn_random precision_dtype zero_plan
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::strings
)

brigade_library(
  models_model_cut
  HEADERS models/model_cut.h
  SOURCES models/model_cut.cc
  DEPS device_status_macros parallel_shard zero_plan
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  models_model
  HEADERS models/model.h
  SOURCES models/model.cc
  DEPS models_model_cut collectives_collective device_status_macros device_stream nn_gradient
    parallel_grid parallel_pipeline_stage_range precision_dtype profile_step_profile zero_step
    zero_plan
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  models_tensor_options
  HEADERS models/tensor_options.h
  DEPS collectives_communicator parallel_shard parallel_tensor_shard_sums
)

brigade_library(
  models_decoder
  HEADERS models/decoder.h models/decoder_memory.h models/gpt2.h models/llama.h
  SOURCES models/decoder.cc models/decoder_context.cc models/decoder_cut.cc models/decoder_flops.cc
    models/decoder_lora.cc models/decoder_memory.cc models/decoder_stage.cc models/decoder_tensor.cc
    models/decoder_tensor_lora.cc models/gpt2.cc models/llama.cc
  DEPS models_config models_lora models_model models_model_cut models_tensor_options
    collectives_collective device_buffer device_context device_status_macros device_stream
    kernels_block_quant kernels_reduce nn_attention nn_blas nn_cached_attention nn_cross_entropy
    nn_dropout nn_embedding nn_gradient nn_grouped_heads nn_layer_norm nn_linear nn_lora
    nn_pointwise nn_random nn_rms_norm nn_rotary nn_segments nn_swiglu nn_token_ids nn_workspace
    parallel_context_ranks parallel_context_ring_attention parallel_context_ulysses parallel_shard
    parallel_tensor_cross_entropy parallel_tensor_embedding parallel_tensor_row_pieces
    parallel_tensor_shard_sums precision_dtype precision_dtype_names profile_flops zero_plan
  PUBLIC_LIBRARIES absl::function_ref absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::inlined_vector absl::strings
)

brigade_library(
  models_new_folder
  HEADERS models/new_folder.h
  SOURCES models/new_folder.cc
  DEPS checkpoint_durable_file device_status_macros device_file_system_calls
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
  PRIVATE_LIBRARIES absl::str_format
)

brigade_library(
  models_parameter_arrays
  HEADERS models/parameter_arrays.h
  SOURCES models/parameter_arrays.cc
  DEPS device_buffer device_context device_status_macros precision_dtype zero_step zero_plan
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  models_tensor_values
  HEADERS models/tensor_values.h
  SOURCES models/tensor_values.cc
  DEPS models_decoder models_parameter_arrays checkpoint_safetensors checkpoint_weight_files
    device_buffer device_context device_status_macros device_stream nn_functions precision_dtype
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::strings
)

brigade_library(
  models_adapters
  HEADERS models/adapter_files.h
  SOURCES models/adapter_config.cc models/adapter_files.cc
  DEPS models_decoder models_lora models_model_cut models_new_folder models_parameter_arrays
    models_tensor_values checkpoint_durable_file checkpoint_safetensors checkpoint_strict_json
    checkpoint_weight_files collectives_agree collectives_communicator device_context
    device_printable device_status_macros device_file_system_calls parallel_shard zero_optimizer
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::strings
  PRIVATE_LIBRARIES nlohmann_json::nlohmann_json
)

brigade_library(
  models_sampling
  HEADERS models/sampling.h
  SOURCES models/sampling.cc
  DEPS device_status_macros nn_philox precision_rounding
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  models_generator
  HEADERS models/generator.h
  SOURCES models/generator.cc
  DEPS models_decoder models_lora models_sampling device_buffer device_context device_status_macros
    device_stream nn_functions precision_dtype zero_step
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  models_merge
  HEADERS models/merge.h
  SOURCES models/merge.cc
  DEPS models_decoder models_lora models_parameter_arrays models_tensor_values device_context
    device_printable device_status_macros nn_functions precision_dtype
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  models_predictor
  HEADERS models/predictor.h
  SOURCES models/predictor.cc
  DEPS models_decoder models_lora data_dataset data_token_samples device_buffer device_context
    device_status_macros device_stream nn_functions precision_dtype zero_step
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  models_weights
  HEADERS models/weights.h
  SOURCES models/load_weights.cc models/match_tensors.cc models/save_weights.cc
  DEPS models_adapters models_config models_decoder models_lora models_model_cut models_new_folder
    models_parameter_arrays models_tensor_values checkpoint_durable_file checkpoint_safetensors
    checkpoint_weight_files checkpoint_weight_index checkpoint_weights collectives_agree
    collectives_communicator device_context device_printable device_status_macros device_stream
    device_file_system_calls nn_functions precision_dtype zero_optimizer zero_plan
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::str_format absl::strings nlohmann_json::nlohmann_json
)

brigade_library(
  models
  DEPS models_adapters models_config models_decoder models_generator models_lora models_merge
    models_model models_model_cut models_module_pattern models_parameter_arrays models_predictor
    models_sampling models_tensor_options models_weights
)
