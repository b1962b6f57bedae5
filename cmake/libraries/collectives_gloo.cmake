# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  collectives_bootstrap_store
  HEADERS collectives/bootstrap/store.h
  SOURCES collectives/bootstrap/store.cc
  DEPS collectives_bootstrap_job device_threads_steady_time
  PUBLIC_LIBRARIES Brigade::system_gloo absl::span absl::status absl::statusor absl::time
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  collectives_bootstrap_file_store
  HEADERS collectives/bootstrap/file_store.h
  SOURCES collectives/bootstrap/file_store.cc
  DEPS collectives_bootstrap_fields collectives_bootstrap_job collectives_bootstrap_store
    device_files device_printable device_threads_steady_time
  PUBLIC_LIBRARIES absl::span absl::status absl::statusor absl::time
  PRIVATE_LIBRARIES absl::str_format absl::strings
)

brigade_library(
  collectives_bootstrap_tcp_store
  HEADERS collectives/bootstrap/tcp_store.h
  SOURCES collectives/bootstrap/tcp_store.cc
  DEPS collectives_bootstrap_fields collectives_bootstrap_job collectives_bootstrap_launch_info
    collectives_bootstrap_store collectives_bootstrap_store_server collectives_internal_connections
    device_printable device_threads_mutex device_threads_steady_time
  PUBLIC_LIBRARIES absl::core_headers absl::span absl::status absl::statusor absl::time
  PRIVATE_LIBRARIES absl::str_format absl::strings
)

brigade_library(
  collectives_engines_gloo_control_message
  HEADERS collectives/engines/gloo/control_message.h
  SOURCES collectives/engines/gloo/control_message.cc
  DEPS collectives_bootstrap_fields device_printable
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  collectives_engines_gloo_missing_headers
  HEADERS collectives/engines/gloo/missing/gloo/common/memory.h
  INCLUDES collectives/engines/gloo/missing
)

brigade_library(
  collectives_engines_gloo_transport
  HEADERS collectives/engines/gloo/gloo_transport.h collectives/engines/gloo/rank_waits.h
    collectives/engines/gloo/control_channel.h collectives/engines/gloo/failure_detector.h
    collectives/engines/gloo/gloo_release.h collectives/engines/gloo/mesh.h
    collectives/engines/gloo/peer_acceptor.h collectives/engines/gloo/peer_sockets.h
    collectives/engines/gloo/post_queue.h collectives/engines/gloo/proved_pair.h
  SOURCES collectives/engines/gloo/gloo_transport.cc collectives/engines/gloo/mesh.cc
    collectives/engines/gloo/control_channel.cc collectives/engines/gloo/failure_detector.cc
    collectives/engines/gloo/peer_acceptor.cc collectives/engines/gloo/peer_sockets.cc
    collectives/engines/gloo/post_queue.cc collectives/engines/gloo/proved_pair.cc
    collectives/engines/gloo/rank_waits.cc
  DEPS collectives_engines_gloo_control_message collectives_engines_gloo_missing_headers
    collectives_bootstrap_job collectives_bootstrap_store collectives_internal_connections
    collectives_engines_transport device_printable device_threads_deadline device_threads_mutex
    device_threads_steady_time
  PUBLIC_LIBRARIES Brigade::system_gloo absl::core_headers absl::span absl::status absl::statusor
    absl::strings absl::time
  PRIVATE_LIBRARIES absl::function_ref
)

brigade_library(
  collectives_engines_gloo_engine
  HEADERS collectives/engines/gloo/gloo_engine.h
  SOURCES collectives/engines/gloo/gloo_engine.cc
  DEPS collectives_engines_gloo_transport collectives_bootstrap_job collectives_bootstrap_store
    collectives_engines_engine collectives_engines_transport_engine device_context
    device_status_macros device_threads_mutex device_threads_steady_time
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::core_headers absl::strings
)

brigade_library(
  collectives_gloo
  DEPS collectives collectives_bootstrap_file_store collectives_bootstrap_job
    collectives_bootstrap_launch_info collectives_bootstrap_tcp_store
    collectives_engines_gloo_engine
)

brigade_library(
  collectives_init
  HEADERS collectives/init.h
  SOURCES collectives/init.cc
  DEPS collectives_communicator collectives_options collectives_bootstrap_file_store
    collectives_bootstrap_launch_info collectives_bootstrap_tcp_store
    collectives_engines_gloo_engine collectives_engines_nccl_api collectives_engines_nccl_engine
    collectives_engines_threads_thread_group device_context device_printable device_status_macros
    device_threads_steady_time
  PUBLIC_LIBRARIES absl::statusor absl::strings absl::time
  PRIVATE_LIBRARIES absl::status
)
