# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  train_config_autotuning
  HEADERS train/config/autotuning.h
  DEPS device_requirements
)

brigade_library(
  train_config_context_exchange
  HEADERS train/config/context_exchange.h
  DEPS parallel_context_ranks
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  train_config_json_reader
  HEADERS train/config/json_reader.h train/config/json_values.h
  SOURCES train/config/json_reader.cc train/config/json_values.cc
  DEPS device_requirements device_edit_distance device_printable device_status_macros
  PUBLIC_LIBRARIES absl::status absl::strings nlohmann_json::nlohmann_json
)

brigade_library(
  train_config
  HEADERS train/config/config.h train/config/config_keys.h train/config/config_nodes.h
    train/config/config_grid.h train/config/config_rules.h train/config/config_sections.h
  SOURCES train/config/autotuning_keys.cc train/config/brigade_keys.cc train/config/config.cc
    train/config/config_grid.cc train/config/config_keys.cc train/config/config_nodes.cc
    train/config/config_rules.cc train/config/optimizer_keys.cc train/config/optimizer_rules.cc
    train/config/parallel_keys.cc train/config/parallel_rules.cc train/config/zero_keys.cc
    train/config/zero_rules.cc train/config/profiler_keys.cc train/config/scheduler_keys.cc
  DEPS train_config_autotuning train_config_context_exchange device_counted train_config_json_reader
    checkpoint_saver checkpoint_strict_json collectives_compressed_power_sgd_all_reduce
    collectives_tuning_topology collectives_options device_file_options device_files
    device_printable device_status_macros kernels_step_control optim_parameter_group optim_schedule
    parallel_grid parallel_shard parallel_pipeline_partition parallel_pipeline_schedule_kind
    parallel_tensor_row_pieces parallel_tensor_shard_sums precision_dtype precision_dtype_names
    recompute_policy zero_plan_batch_sizes zero_options kernels_block_quant_math replicas_options
    kernels_orthogonalize_math profile_options
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  train_config_flag_refusals
  HEADERS train/config/flag_refusals.h
  DEPS train_config_json_reader
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  train_config_key_page
  HEADERS train/config/key_page.h
  SOURCES train/config/key_page.cc
  DEPS train_config train_config_json_reader
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  train_observers_observer
  HEADERS train/observers/history.h train/observers/observer.h train/observers/observers.h
  DEPS checkpoint_saver device_memory_stats device_status_macros device_threads_mutex
    profile_step_profile
  PUBLIC_LIBRARIES absl::core_headers absl::status absl::statusor
)

brigade_library(
  train_times_clock
  HEADERS train/times/clock.h
  DEPS device_requirements
)

brigade_library(
  train_times_time_split
  HEADERS train/times/time_split.h
  SOURCES train/times/time_split.cc
  DEPS device_requirements device_tracing_tracer
  PUBLIC_LIBRARIES absl::span
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  train_times_pass_times
  HEADERS train/times/pass_times.h
  SOURCES train/times/pass_times.cc
  DEPS train_times_time_split device_stream device_threads_thread_pool device_tracing_tracer
    parallel_pipeline_item
  PUBLIC_LIBRARIES absl::span absl::status absl::strings
)

brigade_library(
  train_times_step_times
  HEADERS train/times/step_times.h
  SOURCES train/times/step_times.cc
  DEPS train_times_pass_times train_times_time_split device_tracing_tracer
  PUBLIC_LIBRARIES absl::span
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  train_observers_monitors
  HEADERS train/observers/metric_records.h train/observers/monitors.h
    train/observers/queued_observer.h train/observers/step_watcher.h
  SOURCES train/observers/metric_records.cc train/observers/monitors.cc
    train/observers/step_watcher.cc
  DEPS train_config train_observers_observer train_times_clock train_times_step_times
    device_memory_stats device_status_macros device_user_paths device_threads_mutex monitor_back_end
    monitor_lib monitor_record monitor_csv_files monitor_event_file monitor_json_lines
    monitor_task_queue monitor_dashboard profile_step_profile
  PUBLIC_LIBRARIES absl::core_headers absl::status absl::statusor absl::strings absl::time
)

brigade_library(
  train_observers_console
  HEADERS train/observers/console.h train/observers/loss_curve.h
  SOURCES train/observers/console.cc train/observers/loss_curve.cc
  DEPS train_observers_monitors train_observers_observer device_printable device_status_macros
    profile_text
  PUBLIC_LIBRARIES absl::span
  PRIVATE_LIBRARIES absl::str_format absl::strings absl::time
)

brigade_library(
  train_observers_rank_lanes
  HEADERS train/observers/rank_lanes.h
  SOURCES train/observers/rank_lanes.cc
  DEPS collectives_agree collectives_communicator device_files device_status_macros
    device_threads_mutex device_threads_start_thread train_times_clock train_times_step_times
  PUBLIC_LIBRARIES absl::core_headers absl::status absl::statusor absl::strings absl::time
  PRIVATE_LIBRARIES nlohmann_json::nlohmann_json
)

brigade_library(
  train_times_chrome_trace
  HEADERS train/times/chrome_trace.h
  SOURCES train/times/chrome_trace.cc
  DEPS train_times_pass_times device_files device_requirements device_status_macros
    device_tracing_tracer
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::str_format absl::strings nlohmann_json::nlohmann_json
)

brigade_library(
  train_times_recorder
  HEADERS train/times/recorder.h
  SOURCES train/times/recorder.cc
  DEPS train_times_chrome_trace train_times_clock train_times_pass_times train_times_step_times
    train_times_time_split device_threads_mutex device_threads_periodic_thread device_tracing_tracer
    profile_trace_rows
  PUBLIC_LIBRARIES absl::status absl::strings
)

brigade_library(
  train_job
  HEADERS train/job.h
  DEPS device train_config
)

brigade_library(
  train_step_batch
  HEADERS train/step_batch.h
  SOURCES train/step_batch.cc
  DEPS collectives_collective collectives_options device_buffer device_context device_event
    device_round_up device_status_macros device_stream nn_cross_entropy precision_dtype
  PUBLIC_LIBRARIES absl::status absl::statusor
)

brigade_library(
  train_summary
  HEADERS train/summary.h
  SOURCES train/summary.cc
  DEPS device_memory_stats parallel_grid parallel_pipeline_stage_range recompute_stash train_config
    train_times_pass_times train_times_time_split zero_options zero_plan_movement zero_plan_traffic
  PUBLIC_LIBRARIES absl::span absl::status
)

brigade_library(
  train_task
  HEADERS train/task.h
  DEPS train_job train_step_batch train_summary checkpoint_fields checkpoint_model_part
    collectives_init device_context device_stream parallel_grid parallel_pass_collective
    parallel_pipeline_buffers parallel_pipeline_executor parallel_pipeline_stage_module
    parallel_pipeline_stage_range profile_step_profile recompute_stash train_times_recorder
    zero_optimizer zero_plan zero_plan_memory_model_lib
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
)

brigade_library(
  train_codec_choice
  HEADERS train/codec_choice.h
  SOURCES train/codec_choice.cc
  DEPS train_task train_config train_job collectives_communicator collectives_measurement_measure
    collectives_tuning_codec_cost collectives_tuning_cost_model collectives_tuning_select
    collectives_tuning_topology device_context device_status_macros device_stream parallel_grid
    precision_dtype zero_plan_layout zero_plan
  PUBLIC_LIBRARIES absl::span absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  train_comparisons
  HEADERS train/comparisons.h
  SOURCES train/comparisons.cc
  DEPS train_job parallel_grid zero_options
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  train_stage_parts
  HEADERS train/stage_parts.h
  SOURCES train/stage_parts.cc
  DEPS collectives_agree collectives_communicator device_counted device_status_macros
    parallel_pipeline_partition parallel_pipeline_schedule_kind parallel_pipeline_stage_range
    train_config zero_plan
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::strings
)

brigade_library(
  train_stage_passes
  HEADERS train/stage_passes.h
  SOURCES train/stage_passes.cc
  DEPS train_step_batch device_status_macros device_stream parallel_pipeline_item
    parallel_pipeline_stage_module precision_dtype train_times_pass_times zero_optimizer
  PUBLIC_LIBRARIES absl::status
)

brigade_library(
  train_stage_spec
  HEADERS train/stage_spec.h
  SOURCES train/stage_spec.cc
  DEPS parallel_pipeline_stage_range zero_plan
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  train_model_task
  HEADERS train/model_task.h train/model_part.h train/model_passes.h
  SOURCES train/model_part.cc train/model_passes.cc train/model_task.cc
  DEPS train_job train_stage_parts train_stage_passes train_stage_spec train_step_batch
    train_summary train_task checkpoint_fields checkpoint_model_part collectives_communicator
    collectives_init data_loader data_sampler data_samples device_context device_round_up
    device_status_macros device_stream device_file_crc32c models_model models_model_cut
    models_tensor_options optim_step_controller parallel_grid parallel_context_ranks
    parallel_pipeline_buffers parallel_pipeline_executor parallel_pipeline_item
    parallel_pipeline_partition parallel_pipeline_schedule_kind parallel_pipeline_stage_module
    parallel_pipeline_stage_range profile_step_profile recompute_policy replicas_options
    train_config train_times_pass_times zero_step zero_optimizer zero_plan
    zero_plan_memory_model_lib
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::str_format absl::strings
)

brigade_library(
  train_decoder_model
  HEADERS train/decoder_model.h
  SOURCES train/decoder_model.cc
  DEPS train_model_task models_config models_decoder models_lora recompute_policy
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  train_interrupt
  HEADERS train/interrupt.h
  SOURCES train/interrupt.cc
  DEPS device_requirements device_threads_deadline device_threads_periodic_thread
  PUBLIC_LIBRARIES absl::time
)

brigade_library(
  train_rank_digests
  HEADERS train/rank_digests.h
  SOURCES train/rank_digests.cc
  DEPS train_job train_comparisons checkpoint_model_part collectives_communicator
    collectives_algorithms_wire_elements device_context device_counted device_status_macros
    digests_copies digests_digest_file digests_step_digests digests_tensor_dump parallel_grid
    precision_dtype_names train_observers_observer zero_optimizer
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::str_format absl::strings
)

brigade_library(
  train_stage_setup
  HEADERS train/stage_setup.h
  SOURCES train/stage_setup.cc
  DEPS train_task train_config collectives_communicator device_status_macros parallel_grid
    parallel_pipeline_executor parallel_pipeline_schedule zero_shard_groups zero_optimizer
    replicas_replica_groups
  PUBLIC_LIBRARIES absl::statusor
)

brigade_library(
  train_rank_memory
  HEADERS train/rank_memory.h
  SOURCES train/rank_memory.cc
  DEPS train_task train_summary train_rank_digests train_stage_setup train_step_batch
    collectives_communicator collectives_algorithms_workspace device_context device_status_macros
    parallel_grid parallel_pass_collective parallel_pipeline_buffers parallel_pipeline_executor
    zero_options zero_plan zero_plan_memory_model_lib
  PUBLIC_LIBRARIES absl::function_ref absl::statusor
)

brigade_library(
  train_watch
  HEADERS train/watch.h
  SOURCES train/watch.cc
  DEPS train_job device_counted device_files device_status_macros device_threads_mutex monitor_lib
    train_observers_console train_observers_monitors train_observers_observer
    train_observers_rank_lanes train_times_chrome_trace train_times_recorder
  PUBLIC_LIBRARIES absl::status absl::statusor absl::time
  PRIVATE_LIBRARIES absl::core_headers absl::str_format absl::strings
)

brigade_library(
  train_training
  HEADERS train/rank_trainer.h train/step_profiler.h train/trainer.h train/training.h
    train/rank_books.h train/rank_checkpoints.h
  SOURCES train/rank_books.cc train/rank_checkpoints.cc train/rank_trainer.cc train/step_profiler.cc
    train/trainer.cc train/training.cc
  DEPS train_summary train_task train_times_clock train_codec_choice train_job train_model_task
    train_rank_digests train_rank_memory train_comparisons train_times_recorder train_stage_setup
    train_step_batch checkpoint_folder checkpoint_fields checkpoint_loader checkpoint_model_part
    checkpoint_saver checkpoint_weights collectives_agree collectives_communicator collectives_init
    collectives_bootstrap_launch_info collectives_engines_threads_thread_group device_context
    device_status_macros device_stream device_file_store device_file_system_calls
    device_threads_mutex device_threads_task_thread kernels_adafactor_math optim_schedule
    optim_step_controller parallel_grid parallel_pipeline_executor parallel_pipeline_partition
    parallel_pipeline_schedule_kind precision_dtype_names recompute_stash zero_optimizer
    zero_plan_memory_model_lib replicas_options replicas_outer_optimizer replicas_round_plan
    collectives_algorithms_wire_elements collectives_algorithms_workspace device_files
    profile_ceilings profile_flops profile_text profile_roofline profile_step_profile
    profile_trace_rows train_times_pass_times train_times_time_split train_observers_observer
    train_watch
  PUBLIC_LIBRARIES absl::function_ref absl::status absl::statusor absl::time
  PRIVATE_LIBRARIES absl::core_headers absl::str_format absl::strings
)

brigade_library(
  train
  DEPS train_codec_choice train_decoder_model train_interrupt train_job train_model_task
    train_rank_digests train_rank_memory train_stage_parts train_stage_passes train_stage_setup
    train_stage_spec train_step_batch train_summary train_task train_training train_watch
    train_config train_observers_observer
)
