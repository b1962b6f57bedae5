#include <cstdint>
#include <optional>

#include "brigade/device/file/file_options.h"
#include "brigade/train/config/config_sections.h"

// Names, types and defaults are those of deepspeed/runtime/zero/config.py, zero/offload_config.py
// and swap_tensor/constants.py. What changes memory or speed alone has ZeroOptions' default.

namespace brigade::train {
namespace {

constexpr char kPinned[] = "for a GPU host memory is page-locked, always";

// "device" of two sections.
Value TierOf(device::Tier* target) {
  return OneOf<device::Tier>(target, {{"none", device::Tier::kDevice},
                                      {"cpu", device::Tier::kHost},
                                      {"nvme", device::Tier::kFile}});
}

// 0 alone has a meaning: nothing is gathered ahead.
Value PrefetchBucket(std::optional<int64_t>* target) {
  Value value = Tuning(0, "units are gathered whole, and brigade.live_units says how many");
  value.read = [target, read = value.read](const Json& json) -> Verdict {
    if (json == Json(0)) *target = 0;
    return read(json);
  };
  value.otherwise = "";
  value.remark = absl::StrCat("0: as `live_units` 1; other numbers are ", value.remark);
  return value;
}

Keys OffloadOptimizerKeys(Settings& s) {
  zero::OffloadOptions& offload = s.zero.offload;
  return {
      {"device", TierOf(&offload.optimizer_state),
       "where the state and its update are; `nvme`: a file for each rank in `nvme_path`"},
      {"pin_memory", Tuning(true, kPinned)},
      {"ratio", Number(&offload.host_share, kUnit), "the share on the host, by buckets"},
      {"super_offload", Only(false, "an update that is undone by inverse arithmetic is not exact")},
      {"nvme_path", Text(&s.nvme_path),
       "the directory of the files; a relative one begins at the config's folder"},
      {"buffer_count", Otherwise(Whole(&s.state_arrays, {4.0, 1 << 20, "4 to 2^20"}), "12"),
       "arrays in memory, four to a chunk"},
      {"pipeline_read", Tuning(true, "the next chunk is read beside the update, always")},
      {"pipeline_write", Tuning(true, "the last chunk is written beside the update, always")},
      {"fast_init", Tuning(false, "the state is written chunk by chunk")},
      {"cpuadam_cores_perc", Tuning(0.8, "updates have the threads of the process")},
      {"pipeline", NotSupported()},
  };
}

Keys OffloadParameterKeys(Settings& s) {
  constexpr const char* kSizes = "sizes and number of buffers follow from the buckets";
  return {
      {"device", TierOf(&s.zero.offload.parameters),
       "where weights of stage 3 are between their uses, together with the optimizer's state; "
       "without effect in other stages"},
      {"pin_memory", Tuning(true, kPinned)},
      {"nvme_path", Text(&s.parameters_nvme_path), "the directory of offload_optimizer"},
      {"buffer_count", Tuning(5, kSizes)},
      {"buffer_size", Tuning(1e8, kSizes)},
      {"max_in_cpu", Tuning(1e9, "all weights are in the file, or none")},
  };
}

Keys LocoKeys(Settings& s) {
  return {
      {"err_beta", Number(&s.loco.err_beta, kBelowOne),
       "the share of the errors before a message in those behind it; the rest is what it leaves "
       "out"},
      {"reset_T", Whole(&s.loco.reset_steps, kCount),
       "steps after which errors begin with zero again"},
  };
}

// Of stage 3. All change when weights are gathered and let go, and no result.
Keys GatheringKeys(Settings& s) {
  constexpr char kUnits[] = "brigade.live_units says how many units are gathered at a time";
  constexpr char kModules[] = "units of stage 3 are layers";
  constexpr char kSaved[] = "a checkpoint has all weights, in every stage";
  return {
      {.name = "stage3_prefetch_bucket_size",
       .value = PrefetchBucket(&s.prefetch_bucket_size),
       .also = "prefetch_bucket_size"},
      {.name = "stage3_param_persistence_threshold",
       .value = Whole(&s.zero.persistence_threshold, kCountOrNone),
       .meaning = "units (layers) of so many elements or fewer are not cut",
       .also = "param_persistence_threshold",
       .automatic = OurDefault()},
      {.name = "stage3_model_persistence_threshold",
       .value = Tuning(INT64_MAX, "there is no limit"),
       .also = "model_persistence_threshold"},
      {.name = "stage3_max_live_parameters",
       .value = Tuning(1e9, kUnits),
       .also = "max_live_parameters"},
      {.name = "stage3_max_reuse_distance",
       .value = Tuning(1e9, kUnits),
       .also = "max_reuse_distance"},
      {.name = "stage3_module_granularity_threshold",
       .value = Tuning(0, kModules),
       .also = "module_granularity_threshold"},
      {.name = "stage3_use_all_reduce_for_fetch_params",
       .value = Tuning(false, "units are all-gathered"),
       .also = "use_all_reduce_for_fetch_params"},
      {.name = "stage3_allgather_sequential",
       .value = Tuning(false, "units are gathered one after the other, always"),
       .also = "allgather_sequential"},
      {.name = "stage3_gather_16bit_weights_on_model_save",
       .value = Tuning(false, kSaved),
       .also = "gather_16bit_weights_on_model_save"},
      {"stage3_gather_fp16_weights_on_model_save", Tuning(false, kSaved)},
      {"leaf_module", Tuning(nullptr, kModules)},
      {"memory_efficient_linear", Tuning(true, "layers are those of nn/")},
      {"override_module_apply", Tuning(true, "there are no modules of PyTorch")},
      {"pipeline_loading_checkpoint", Tuning(false, "each rank loads what it owns")},
      {"log_trace_cache_warnings", Tuning(false, "the order of layers is known")},
      {"enable_sanity_checks", Tuning(false, "there are no hooks to be checked")},
      {"save_muon_momentum_buffer_in_memory", Tuning(false, "it is where the optimizer state is")},
  };
}

}  // namespace

Keys ZeroKeys(Settings& s) {
  zero::ZeroOptions& zero = s.zero;
  Keys keys = {
      {"stage", Whole(&zero.stage, {0.0, zero::kStages - 1, "0 to 3"}),
       "what is cut among the ranks that share the batch: from 1 on the optimizer's state, from 2 "
       "on "
       "gradients, in 3 weights"},
      {.name = "reduce_bucket_size",
       .value = Whole(&zero.bucket_elements, kCount),
       .meaning = "elements of gradients that are reduced together",
       .automatic = OurDefault()},
      {.name = "allgather_bucket_size",
       .value = Otherwise(Whole(&s.allgather_bucket_size, kCountOrNone), "as reduce_bucket_size"),
       .meaning = "without effect where it differs: weights are gathered in the buckets of their "
                  "gradients",
       .automatic = OurDefault()},
      {.name = "overlap_comm",
       .value = Flag(&zero.overlap_comm),
       .meaning = "ranks exchange beside the passes; it changes no bit",
       .automatic = OurDefault()},
      {"contiguous_gradients", Tuning(true, "gradients are written into buckets, always")},
      {"reduce_scatter", Tuning(true, "gradients are reduce-scattered, always")},
      {"allgather_partitions", Tuning(true, "weights are all-gathered, always")},
      {"use_multi_rank_bucket_allreduce", Tuning(true, "buckets are reduced one by one")},
      {"round_robin_gradients", Tuning(false, "a bucket's slices are what a rank owns")},
      {"ignore_unused_parameters", Only(true, "a gradient that is not written counts as zero")},
      {"elastic_checkpoint", Either(false, "any number of ranks loads a checkpoint")},
      {"load_from_fp32_weights", Only(true, "checkpoints have fp32 masters")},
      {.name = "sub_group_size",
       .value = Otherwise(Whole(&s.sub_group_size, kCountOrNone), "4194304"),
       .meaning = "elements of a chunk of what is in files; without effect where nothing is",
       .automatic = OurDefault()},
      {.name = "offload_optimizer",
       .meaning = "The optimizer's state on the host, or in files (`docs/offload.md`).",
       .keys = OffloadOptimizerKeys(s)},
      {.name = "offload_param",
       .meaning = "The weights of stage 3 on the host, or in files.",
       .keys = OffloadParameterKeys(s)},
      {"cpu_offload", Only(false, "offload_optimizer.device says it, \"cpu\"")},
      {"cpu_offload_param", Only(false, "offload_param.device says it, \"cpu\"")},
      {"cpu_offload_use_pin_memory", Tuning(true, kPinned)},
      {"legacy_stage1", Only(false, "there is one stage 1")},
      {"mics_hierarchical_params_gather", Only(false, "brigade.algorithm says it here")},
      {"mics_shard_size", Whole(&s.mics_shard_size, {-1.0, 1 << 15, "-1 to 2^15"}),
       "as `brigade.shard_ranks`, in every stage; -1: not given"},
      {"zenflow", Only(nullptr, "it changes results: most gradients are applied late")},
      {"zero_hpz_partition_size", Whole(&s.hpz_partition_size, kRanks),
       "of stage 3: ranks, one after another, that have a second slice of each weight, from which "
       "the backward pass gathers; 1: there are none"},
      {"zero_quantized_weights", OrChosen(Flag(&s.quantized_weights), &s.open.weights),
       "of stages 1 to 3: weights of 16 bits are gathered as int8 codes, and all ranks use what "
       "these keep of them (`docs/compression.md`); \"auto\": where the cost model says that it "
       "pays"},
      {"zero_quantized_nontrainable_weights",
       OrChosen(Flag(&s.quantized_frozen_weights), &s.open.frozen_weights),
       "the same of weights that are not trained, in stage 3"},
      {"zero_quantized_gradients", OrChosen(Flag(&s.quantized_gradients), &s.open.gradients),
       "gradients are summed as int4 codes; in two hops, inside nodes and between them, where "
       "`brigade.ranks_per_node`, or else `brigade.topology`, has nodes of one size; \"auto\": "
       "where the cost model says that it pays"},
      {.name = "zeropp_loco_param",
       .meaning =
           "Error feedback of zero_quantized_gradients: what codes leave out enters the next "
           "ones (`docs/compression.md`). An empty object is enough; null: there is none.",
       .keys = LocoKeys(s)},
  };
  for (Key& key : GatheringKeys(s)) keys.push_back(std::move(key));
  return keys;
}

Keys AioKeys(Settings& s) {
  device::FileOptions& file = s.zero.offload.file;
  constexpr const char* kDepth = "queue_depth says how much is in flight";
  return {
      {"block_size", Whole(&file.block_bytes, {4096.0, 1 << 30, "4096 to 2^30"}),
       "bytes of a request, a multiple of 4096"},
      {"queue_depth", Whole(&file.queue_depth, {1.0, 1024.0, "1 to 1024"}), "requests in flight"},
      {"single_submit", Tuning(false, "requests that are there are sent together")},
      {"overlap_events", Tuning(true, "requests are sent as others end, always")},
      {"use_gds", Tuning(false, "files are read and written by the host")},
      // DeepSpeed's documentation has the second name, its code the first.
      {.name = "intra_op_parallelism", .value = Tuning(1, kDepth), .also = "thread_count"},
  };
}

}  // namespace brigade::train
