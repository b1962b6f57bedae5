# Written by tools/generate_cmake from the BUILD files; CI compares.

# For bits and speed, from bazel/cc.bzl and bazel/nvcc.bzl.
set(BRIGADE_BIT_FLAGS -ffp-contract=off)
set(BRIGADE_FLOAT_FLAGS -fno-math-errno -fno-trapping-math)
set(BRIGADE_OPTIMIZED_FLAGS -O3)
set(BRIGADE_CUDA_BIT_FLAGS --fmad=false)
set(BRIGADE_CUDA_FLAGS --extended-lambda --expt-relaxed-constexpr)

# Components, each behind those that it needs: all of them, in their order.
set(BRIGADE_ALL_COMPONENTS device precision kernels collectives optim nn zero replicas parallel
  checkpoint collectives_nccl collectives_gloo data digests profile models monitor recompute train)

# Of each component: the components that it needs, directly or not; the libraries of others that its
# users need, and that building it takes besides, and takes if they are there; pkg-config's names of
# the first.
set(BRIGADE_NEEDS_device)
set(BRIGADE_PACKAGES_device absl)
set(BRIGADE_BUILD_PACKAGES_device)
set(BRIGADE_PKG_CONFIG_device absl_core_headers absl_function_ref absl_inlined_vector absl_memory
  absl_node_hash_set absl_span absl_status absl_statusor absl_str_format absl_strings absl_time)
set(BRIGADE_NEEDS_precision)
set(BRIGADE_PACKAGES_precision absl)
set(BRIGADE_BUILD_PACKAGES_precision)
set(BRIGADE_PKG_CONFIG_precision absl_strings)
set(BRIGADE_NEEDS_kernels device precision)
set(BRIGADE_PACKAGES_kernels absl hwy)
set(BRIGADE_BUILD_PACKAGES_kernels)
set(BRIGADE_PKG_CONFIG_kernels libhwy absl_span absl_status absl_statusor absl_strings)
set(BRIGADE_NEEDS_collectives device precision kernels)
set(BRIGADE_PACKAGES_collectives absl sodium)
set(BRIGADE_BUILD_PACKAGES_collectives json)
set(BRIGADE_PKG_CONFIG_collectives libsodium absl_cleanup absl_core_headers absl_function_ref
  absl_inlined_vector absl_span absl_status absl_statusor absl_str_format absl_strings absl_time)
set(BRIGADE_NEEDS_optim device precision kernels)
set(BRIGADE_PACKAGES_optim absl)
set(BRIGADE_BUILD_PACKAGES_optim)
set(BRIGADE_PKG_CONFIG_optim absl_function_ref absl_span absl_status absl_statusor absl_strings)
set(BRIGADE_NEEDS_nn device precision kernels)
set(BRIGADE_PACKAGES_nn absl openblas)
set(BRIGADE_BUILD_PACKAGES_nn)
set(BRIGADE_OPTIONAL_PACKAGES_nn onednn)
set(BRIGADE_PKG_CONFIG_nn openblas absl_span absl_status absl_statusor absl_strings)
set(BRIGADE_NEEDS_zero device precision kernels collectives optim)
set(BRIGADE_PACKAGES_zero absl)
set(BRIGADE_BUILD_PACKAGES_zero)
set(BRIGADE_PKG_CONFIG_zero absl_algorithm_container absl_core_headers absl_function_ref
  absl_inlined_vector absl_span absl_status absl_statusor absl_str_format absl_strings)
set(BRIGADE_NEEDS_replicas device precision kernels collectives optim zero)
set(BRIGADE_PACKAGES_replicas absl)
set(BRIGADE_BUILD_PACKAGES_replicas)
set(BRIGADE_PKG_CONFIG_replicas absl_span absl_status absl_statusor absl_strings)
set(BRIGADE_NEEDS_parallel device precision kernels collectives nn optim zero replicas)
set(BRIGADE_PACKAGES_parallel absl)
set(BRIGADE_BUILD_PACKAGES_parallel)
set(BRIGADE_PKG_CONFIG_parallel absl_function_ref absl_inlined_vector absl_span absl_status
  absl_statusor absl_str_format absl_strings)
set(BRIGADE_NEEDS_checkpoint device precision kernels collectives optim nn zero replicas parallel)
set(BRIGADE_PACKAGES_checkpoint absl json)
set(BRIGADE_BUILD_PACKAGES_checkpoint)
set(BRIGADE_PKG_CONFIG_checkpoint nlohmann_json absl_algorithm_container absl_core_headers
  absl_flat_hash_map absl_function_ref absl_memory absl_span absl_status absl_statusor
  absl_str_format absl_strings absl_time)
set(BRIGADE_NEEDS_collectives_nccl device precision kernels collectives)
set(BRIGADE_PACKAGES_collectives_nccl absl)
set(BRIGADE_BUILD_PACKAGES_collectives_nccl)
set(BRIGADE_PKG_CONFIG_collectives_nccl absl_core_headers absl_function_ref absl_span absl_status
  absl_statusor absl_strings absl_time)
set(BRIGADE_NEEDS_collectives_gloo device precision kernels collectives collectives_nccl)
set(BRIGADE_PACKAGES_collectives_gloo absl gloo)
set(BRIGADE_BUILD_PACKAGES_collectives_gloo)
set(BRIGADE_PKG_CONFIG_collectives_gloo -lgloo absl_core_headers absl_function_ref absl_span
  absl_status absl_statusor absl_str_format absl_strings absl_time)
set(BRIGADE_NEEDS_data device precision kernels collectives optim nn zero replicas parallel
  checkpoint)
set(BRIGADE_PACKAGES_data absl)
set(BRIGADE_BUILD_PACKAGES_data json)
set(BRIGADE_PKG_CONFIG_data absl_core_headers absl_flat_hash_map absl_function_ref absl_memory
  absl_span absl_status absl_statusor absl_strings)
set(BRIGADE_NEEDS_digests device precision kernels collectives optim nn zero replicas parallel
  checkpoint)
set(BRIGADE_PACKAGES_digests absl)
set(BRIGADE_BUILD_PACKAGES_digests json)
set(BRIGADE_PKG_CONFIG_digests absl_function_ref absl_span absl_status absl_statusor absl_str_format
  absl_strings)
set(BRIGADE_NEEDS_profile device precision kernels collectives nn)
set(BRIGADE_PACKAGES_profile absl)
set(BRIGADE_BUILD_PACKAGES_profile json)
set(BRIGADE_PKG_CONFIG_profile absl_flat_hash_map absl_span absl_status absl_statusor
  absl_str_format absl_strings)
set(BRIGADE_NEEDS_models device precision kernels collectives optim nn zero replicas parallel
  checkpoint data profile)
set(BRIGADE_PACKAGES_models absl)
set(BRIGADE_BUILD_PACKAGES_models json)
set(BRIGADE_PKG_CONFIG_models absl_function_ref absl_inlined_vector absl_span absl_status
  absl_statusor absl_str_format absl_strings)
set(BRIGADE_NEEDS_monitor device)
set(BRIGADE_PACKAGES_monitor absl)
set(BRIGADE_BUILD_PACKAGES_monitor json)
set(BRIGADE_PKG_CONFIG_monitor absl_core_headers absl_status absl_statusor absl_str_format
  absl_strings absl_time)
set(BRIGADE_NEEDS_recompute device)
set(BRIGADE_PACKAGES_recompute absl)
set(BRIGADE_BUILD_PACKAGES_recompute)
set(BRIGADE_PKG_CONFIG_recompute absl_algorithm_container absl_function_ref absl_span absl_status
  absl_statusor absl_strings)
set(BRIGADE_NEEDS_train device precision kernels collectives optim nn zero replicas parallel
  checkpoint collectives_nccl collectives_gloo data digests profile models monitor recompute)
set(BRIGADE_PACKAGES_train absl json)
set(BRIGADE_BUILD_PACKAGES_train)
set(BRIGADE_PKG_CONFIG_train nlohmann_json absl_core_headers absl_function_ref absl_span absl_status
  absl_statusor absl_str_format absl_strings absl_time)

# Those libraries: what people call it, Debian's package, the target, and how it is found: by a
# package of CMake's, by a header and a library, or by a header, with the macro that says so.
set(BRIGADE_EXTERNAL_absl "Abseil" libabsl-dev absl::status PACKAGE absl)
set(BRIGADE_EXTERNAL_gloo "Gloo" libgloo-dev Brigade::system_gloo FILES gloo/config.h gloo)
set(BRIGADE_EXTERNAL_hwy "Highway" libhwy-dev hwy::hwy PACKAGE hwy)
set(BRIGADE_EXTERNAL_json "JSON for Modern C++" nlohmann-json3-dev nlohmann_json::nlohmann_json
  PACKAGE nlohmann_json)
set(BRIGADE_EXTERNAL_onednn "oneDNN" libdnnl-dev Brigade::system_onednn HEADER oneapi/dnnl/dnnl.h
  BRIGADE_HAS_ONEDNN)
set(BRIGADE_EXTERNAL_openblas "OpenBLAS" libopenblas-dev Brigade::system_openblas FILES cblas.h
  openblas)
set(BRIGADE_EXTERNAL_sodium "libsodium" libsodium-dev Brigade::system_sodium FILES sodium.h sodium)
set(BRIGADE_HEADER_ONLY nlohmann_json::nlohmann_json)
