# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  device_printable
  HEADERS device/printable.h
  SOURCES device/printable.cc
  PUBLIC_LIBRARIES absl::strings
  PRIVATE_LIBRARIES absl::str_format
)

brigade_library(
  device_file_system_calls
  HEADERS device/file/system_calls.h
  SOURCES device/file/system_calls.cc
)

brigade_library(
  device_status_macros
  HEADERS device/status_macros.h
  PUBLIC_LIBRARIES absl::status absl::statusor
)

brigade_library(
  device_requirements
  HEADERS device/requirements.h
)

brigade_library(
  device_id
  HEADERS device/device.h
  SOURCES device/device.cc
  DEPS device_requirements
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  device_threads_deadline
  HEADERS device/threads/deadline.h
  PUBLIC_LIBRARIES absl::time
)

brigade_library(
  device_threads_mutex
  HEADERS device/threads/mutex.h
  DEPS device_threads_deadline
  PUBLIC_LIBRARIES absl::core_headers absl::time
)

brigade_library(
  device_memory_stats
  HEADERS device/memory_stats.h
  SOURCES device/memory_stats.cc
  DEPS device_threads_mutex
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  device_address_registry
  HEADERS device/address_registry.h
  SOURCES device/address_registry.cc
  DEPS device_id device_memory_stats device_threads_mutex
  PUBLIC_LIBRARIES absl::status absl::strings
)

brigade_library(
  device_race_checker_interval_map
  HEADERS device/race_checker/interval_map.h
)

brigade_library(
  device_operation
  HEADERS device/operation.h
  PUBLIC_LIBRARIES absl::span absl::strings
)

brigade_library(
  device_race_checker
  HEADERS device/race_checker/race_checker.h device/race_checker/vector_clock.h
    device/race_checker/access_history.h device/race_checker/actor_table.h
    device/race_checker/shadow.h
  SOURCES device/race_checker/access_history.cc device/race_checker/actor_table.cc
    device/race_checker/race_checker.cc device/race_checker/shadow.cc
  DEPS device_race_checker_interval_map device_operation device_requirements device_threads_mutex
  PUBLIC_LIBRARIES absl::function_ref absl::inlined_vector absl::status absl::strings
)

brigade_library(
  device_threads_spin
  HEADERS device/threads/spin.h
)

brigade_library(
  device_internal_backend
  HEADERS device/internal/backend.h device/internal/carried_errors.h device/internal/event_record.h
    device/internal/first_error.h device/internal/messages.h device/internal/task.h
  SOURCES device/internal/carried_errors.cc device/internal/event_record.cc
  DEPS device_id device_race_checker device_threads_mutex device_threads_spin
  PUBLIC_LIBRARIES absl::function_ref absl::span absl::status absl::statusor absl::strings
)

brigade_library(
  device_tracing_tracer
  HEADERS device/tracing/trace_buffer.h device/tracing/tracer.h
  SOURCES device/tracing/tracer.cc device/tracing/trace_buffer.cc
  DEPS device_threads_mutex
  PUBLIC_LIBRARIES absl::node_hash_set absl::strings
)

brigade_library(
  device_context_options
  HEADERS device/context_options.h
  DEPS device_id device_race_checker device_tracing_tracer
)

brigade_library(
  device_threads_start_thread
  HEADERS device/threads/start_thread.h
)

brigade_library(
  device_threads_worker_thread
  HEADERS device/threads/worker_thread.h
  DEPS device_threads_start_thread
)

brigade_library(
  device_threads_thread_pool
  HEADERS device/threads/thread_pool.h
  SOURCES device/threads/thread_pool.cc
  DEPS device_threads_mutex device_threads_spin device_threads_worker_thread
)

brigade_library(
  device_internal_context_state
  HEADERS device/internal/context_state.h
  SOURCES device/internal/context_state.cc
  DEPS device_internal_backend device_address_registry device_context_options device_memory_stats
    device_race_checker device_threads_mutex device_threads_thread_pool device_threads_worker_thread
    device_tracing_tracer
  PUBLIC_LIBRARIES absl::statusor absl::strings
)

brigade_library(
  device_event
  HEADERS device/event.h
  SOURCES device/event.cc
  DEPS device_id device_internal_backend device_internal_context_state device_threads_worker_thread
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  device_stream
  HEADERS device/stream.h
  SOURCES device/stream.cc
  DEPS device_address_registry device_id device_event device_operation device_status_macros
    device_internal_backend device_internal_context_state device_race_checker device_threads_mutex
    device_threads_thread_pool device_threads_worker_thread
  PUBLIC_LIBRARIES absl::function_ref absl::span absl::status absl::strings
)

brigade_library(
  device_cuda_status CUDA_ONLY
  HEADERS device/cuda/cuda_status.h
  SOURCES device/cuda/cuda_status.cc
  PUBLIC_LIBRARIES absl::status absl::strings
  CUDA_LIBRARIES CUDA::cudart_static
)

brigade_library(
  device_round_up
  HEADERS device/round_up.h
  DEPS device_requirements
)

brigade_library(
  device_file_aligned_memory
  HEADERS device/file/aligned_memory.h
  DEPS device_round_up
)

brigade_library(
  device_file_crc32c
  HEADERS device/file/crc32c.h device/file/crc32c_methods.h
  SOURCES device/file/crc32c.cc
  DEPS device_requirements
  PUBLIC_LIBRARIES absl::span absl::strings
)

brigade_library(
  device_file_engine
  HEADERS device/file/file_engine.h
  PUBLIC_LIBRARIES absl::statusor
)

brigade_library(
  device_file_transfer
  HEADERS device/file/file_transfer.h
  SOURCES device/file/file_transfer.cc
  DEPS device_file_aligned_memory device_file_crc32c device_file_engine device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  device_file_store_table
  HEADERS device/file/store_table.h
  SOURCES device/file/store_table.cc
  DEPS device_file_aligned_memory device_file_crc32c device_file_system_calls
  PUBLIC_LIBRARIES absl::span absl::statusor absl::strings
)

brigade_library(
  device_file_options
  HEADERS device/file/file_options.h
  SOURCES device/file/file_options.cc
  DEPS device_file_aligned_memory device_file_transfer device_file_store_table device_requirements
  PUBLIC_LIBRARIES absl::span absl::status absl::strings
)

brigade_library(
  device_buffer
  HEADERS device/buffer.h
  SOURCES device/buffer.cc
  DEPS device_address_registry device_id device_memory_stats device_internal_context_state
  PUBLIC_LIBRARIES absl::span absl::strings
)

brigade_library(
  device_cpu_task_queue
  HEADERS device/cpu/task_queue.h
  SOURCES device/cpu/task_queue.cc
  DEPS device_internal_backend
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  device_cpu_backend
  HEADERS device/cpu/cpu_backend.h device/cpu/cpu_memory.h device/cpu/cpu_stream.h
  SOURCES device/cpu/cpu_backend.cc device/cpu/cpu_memory.cc device/cpu/cpu_stream.cc
  DEPS device_cpu_task_queue device_address_registry device_context_options device_status_macros
    device_internal_backend device_threads_mutex device_threads_spin device_threads_thread_pool
    device_threads_worker_thread device_tracing_tracer
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  device_cuda_driver CUDA_ONLY
  HEADERS device/cuda/cuda_driver.h
  CUDA_LIBRARIES CUDA::cudart_static
)

brigade_library(
  device_cuda_device_guard CUDA_ONLY
  HEADERS device/cuda/cuda_device_guard.h
  SOURCES device/cuda/cuda_device_guard.cc
  DEPS device_cuda_driver
  CUDA_LIBRARIES CUDA::cudart_static
)

brigade_library(
  device_cuda_backend CUDA_ONLY
  HEADERS device/cuda/cuda_backend.h device/cuda/cuda_arrivals.h device/cuda/cuda_flag.h
    device/cuda/cuda_relaxed_capture.h device/cuda/cuda_stream.h device/cuda/cuda_trace.h
  SOURCES device/cuda/cuda_arrivals.cc device/cuda/cuda_backend.cc device/cuda/cuda_flag.cc
    device/cuda/cuda_stream.cc device/cuda/cuda_trace.cc
  DEPS device_cuda_device_guard device_cuda_driver device_cuda_status device_id device_status_macros
    device_internal_backend device_threads_mutex device_tracing_tracer
  PUBLIC_LIBRARIES absl::function_ref absl::status absl::statusor absl::strings
  CUDA_LIBRARIES CUDA::cudart_static
)

brigade_library(
  device_context
  HEADERS device/context.h
  SOURCES device/context.cc
  DEPS device_address_registry device_buffer device_context_options device_id device_event
    device_memory_stats device_status_macros device_stream device_cpu_backend
    device_internal_backend device_internal_context_state device_race_checker device_tracing_tracer
  CUDA_DEPS device_cuda_backend
  PUBLIC_LIBRARIES absl::statusor absl::strings
)

brigade_library(
  device_all_errors
  HEADERS device/all_errors.h
  PUBLIC_LIBRARIES absl::status absl::strings
)

brigade_library(
  device_files
  HEADERS device/files.h
  SOURCES device/files.cc
  DEPS device_printable
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  device_append_file
  HEADERS device/append_file.h
  SOURCES device/append_file.cc
  DEPS device_files device_printable device_status_macros
  PUBLIC_LIBRARIES absl::function_ref absl::status absl::statusor absl::strings
)

brigade_library(
  device_byte_count
  HEADERS device/byte_count.h
  SOURCES device/byte_count.cc
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  device_counted
  HEADERS device/counted.h
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  device_memory
  HEADERS device/device_memory.h
  SOURCES device/device_memory.cc
  DEPS device_id device_status_macros
  CUDA_DEPS device_cuda_backend device_cuda_device_guard device_cuda_status
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings
  CUDA_LIBRARIES CUDA::cudart_static
)

brigade_library(
  device_edit_distance
  HEADERS device/edit_distance.h
  SOURCES device/edit_distance.cc
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  device_user_paths
  HEADERS device/user_paths.h
  SOURCES device/user_paths.cc
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  device
  DEPS device_address_registry device_all_errors device_append_file device_buffer device_byte_count
    device_context device_counted device_id device_memory device_edit_distance device_event
    device_files device_memory_stats device_operation device_printable device_requirements
    device_status_macros device_stream device_user_paths device_race_checker
    device_threads_thread_pool device_tracing_tracer
)

brigade_library(
  device_file_engines
  HEADERS device/file/engines.h device/file/io_uring_engine.h device/file/thread_engine.h
  SOURCES device/file/engines.cc device/file/io_uring_engine.cc device/file/thread_engine.cc
  DEPS device_file_engine device_file_options device_file_system_calls device_status_macros
    device_threads_mutex device_threads_start_thread
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::status absl::strings
)

brigade_library(
  device_file_size_signal
  HEADERS device/file/file_size_signal.h
  SOURCES device/file/file_size_signal.cc
)

brigade_library(
  device_file_store_file
  HEADERS device/file/store_file.h
  SOURCES device/file/store_file.cc
  DEPS device_file_aligned_memory device_file_transfer device_file_system_calls device_printable
    device_status_macros
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::strings
)

brigade_library(
  device_file_store_versions
  HEADERS device/file/store_versions.h
  SOURCES device/file/store_versions.cc
  DEPS device_file_aligned_memory device_file_options device_file_size_signal device_file_store_file
    device_file_store_table device_operation device_printable device_status_macros
    device_threads_mutex
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  device_file_store
  HEADERS device/file/file_store.h
  SOURCES device/file/file_store.cc
  DEPS device_file_aligned_memory device_file_engines device_file_engine device_file_options
    device_file_size_signal device_file_transfer device_file_store_file device_file_store_table
    device_file_store_versions device_file_system_calls device_address_registry device_id
    device_operation device_printable device_status_macros device_stream device_threads_mutex
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::strings
)

brigade_library(
  device_threads_task_thread
  HEADERS device/threads/task_thread.h
  SOURCES device/threads/task_thread.cc
  DEPS device_threads_deadline device_threads_mutex device_threads_start_thread
  PUBLIC_LIBRARIES absl::core_headers absl::statusor absl::time
  PRIVATE_LIBRARIES absl::memory absl::status
)

brigade_library(
  device_threads_steady_time
  HEADERS device/threads/steady_time.h
  PUBLIC_LIBRARIES absl::time
)

brigade_library(
  device_threads_periodic_thread
  HEADERS device/threads/periodic_thread.h
  SOURCES device/threads/periodic_thread.cc
  DEPS device_threads_mutex
  PUBLIC_LIBRARIES absl::core_headers absl::time
)
