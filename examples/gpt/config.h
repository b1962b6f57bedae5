#ifndef BRIGADE_EXAMPLES_GPT_CONFIG_H_
#define BRIGADE_EXAMPLES_GPT_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/collectives/options.h"
#include "brigade/examples/gpt/context_exchange.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/parallel/tensor/shard_sums.h"
#include "brigade/recompute/policy.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/batch_sizes.h"

namespace brigade::gpt {

// By what a plan of recomputation counts the time of passes.
enum class RecomputeTimes : uint8_t {
  // By operations.
  kOperations,
  // By a trial before the first step.
  kMeasured,
};

// "operations", "measured". InvalidArgument naming the text and what it may be.
absl::StatusOr<RecomputeTimes> ParseRecomputeTimes(absl::string_view text);

// How ranks share a model, as far as it is given elsewhere.
struct ModelParallelism {
  // Ranks that share its matrices, and each text; 0: not given.
  int tensor = 0;
  int context = 0;
  // ModelOptions::tensor_shards; 0: not given.
  int tensor_shards = 0;
  // ModelOptions::sequence_parallel; false: not given.
  bool sequence_parallel = false;
  // ModelOptions::tensor_pieces, with overlap; 0: not given.
  int tensor_overlap = 0;
  // Of context ranks.
  std::optional<ContextExchange> context_exchange = {};
  // Ranks that share its layers, one for each stage of a pipeline; 0: not given.
  int pipeline = 0;
  // Of the pipeline.
  std::optional<parallel::ScheduleChoice> schedule = {};
  std::optional<parallel::PartitionChoice> partition = {};
};

// The most chunks of a stage of a pipeline, for which summaries of ranks have room (job.h).
inline constexpr int kMaxChunks = 8;

// What a DeepSpeed-style JSON file says about a training run.
struct TrainConfig {
  // All three sizes are set. The ranks that divide train_batch_size are the grid's data ranks.
  zero::BatchSizes batch;
  // Valid; micro_batches is batch.gradient_accumulation_steps.
  zero::ZeroOptions zero;
  // Which activations the backward pass makes again.
  recompute::Policy recompute;
  RecomputeTimes recompute_times = RecomputeTimes::kOperations;
  // The share of activations that training passes drop, where the model has dropout.
  double dropout = 0;
  // How checkpoints are written.
  checkpoint::WriteMode write_mode = checkpoint::WriteMode::kInPlace;
  // Of the group of all ranks: its topology, if any.
  collectives::CommunicatorOptions communicator;
  // Of all ranks.
  parallel::GridShape grid = {};
  // ModelOptions' and PassShape's.
  int tensor_shards = 1;
  bool sequence_parallel = false;
  int tensor_pieces = 1;
  bool keep_gathered = false;
  bool tensor_overlap = false;
  parallel::SumWire sum_wire = parallel::SumWire::kFloat32;
  ContextExchange context_exchange = ContextExchange::kUlysses;
  // Of the grid's pipeline, if it has one: what its stages run, and by what the model is cut.
  parallel::ScheduleChoice schedule = {};
  parallel::PartitionChoice partition = {};

  // Valid; without a pipeline of one stage.
  parallel::PipelineShape pipeline_shape() const {
    return {.schedule = schedule,
            .stages = grid.pipeline,
            .micro_batches = static_cast<int>(batch.gradient_accumulation_steps)};
  }
};

// Keys have DeepSpeed's names and meaning; config_keys.cc is the table of them. What is not given
// has DeepSpeed's default where it changes a result, and ZeroOptions' where it changes only memory
// or speed. An optimizer is needed.
//
//   neither fp16 nor bf16               float32
//   reduce_bucket_size                  bucket_elements
//   allgather_bucket_size               must be the same: parameters are gathered in the buckets of
//                                       their gradients
//   stage3_param_persistence_threshold  persistence_threshold: of units (layers), which are
//                                       gathered whole
//   stage3_prefetch_bucket_size         0: live_units = 1; any other value is refused, because
//                                       prefetching is counted in units
//   offload_optimizer                   offload: device none | cpu | nvme, the state and its update
//                                       on the host, or the state in a file in the directory
//                                       nvme_path; relative ones begin at the config's folder
//     ratio                             host_share, by buckets
//     buffer_count                      of arrays, four to a chunk: chunk_buffers
//     pipeline_read, pipeline_write     true: what is always so
//   offload_param                       offload.parameters: device none | cpu | nvme (with the
//                                       optimizer state, in the same directory)
//   sub_group_size                      of nvme: chunk_elements
//   aio                                 of files, offload.file: block_size, queue_depth
//   data_types.grad_accum_dtype         accumulator; float32 if not given
//   communication_data_type             communication_dtype; the gradients' own if not given
//   activation_checkpointing            the section, empty too: recompute "block" (DeepSpeed makes
//                                       again what the model says)
//     cpu_checkpointing                 true: brigade.stash "host"
//   checkpoint                          of --save and --resume:
//     use_node_local_storage            a file for each rank, on the disk of its host
//     load_universal, tag_validation    any value: any number of ranks loads, and tags are compared
//   tensor_parallel                     ranks that share the model's matrices:
//     autotp_size, tp.tp_size           of which one is enough; tensor_parallel is another name of
//                                       tp
//     tp_overlap_comm                   true: they exchange pieces of products beside products
//                                       (Megatron's tp_comm_overlap)
//   sequence_parallel_size              ranks that share each text
//   pipeline                            ranks that share the model's layers:
//     stages                            how many; "auto": as --pipeline says
//     partition                         "parameters" (brigade.partition has others)
//     activation_checkpoint_interval    K: brigade.recompute "segments:K"; 0: "none"
//     pipe_partitioned,                 whether tensor ranks send parts of what goes from stage to
//     grad_partitioned                  stage, which is as brigade.sequence_parallel says
//     seed_layers                       true: weights depend on the seed and on where they are in
//                                       the model, always
//     use_reentrant                     any value: there is no graph of autograd
//   brigade                             what DeepSpeed has no key for:
//     accumulation                      every_micro_batch | at_boundary
//     algorithm                         auto | direct | ring | bidirectional_ring |
//                                       halving_doubling | hierarchical | double_tree | native
//     reduction                         rounded_once (of auto and direct alone) | fp32_partials
//                                       (not of native) | rounded_per_hop
//     topology                          the path of a machine's figures (TopologyFromJson), by
//                                       which auto chooses; relative ones begin at the config's
//                                       folder
//     ranks_per_node                    nodes of so many ranks, numbered node by node; else the
//                                       ranks_of_node of the machine. hierarchical needs nodes
//     at_minimum_loss_scale             error | clamp
//     context_exchange                  ulysses | ring, or a2a | p2p (Megatron's cp_comm_type): how
//                                       ranks that share texts attend (context_exchange.h)
//     delay_update                      true: the host's update comes a step late (offload.h)
//     delay_warm_up                     steps before that
//     file_directory                    of stash "file", or instead of nvme_path
//     file_engine                       auto | io_uring | threads
//     file_direct                       false: through the page cache
//     file_checksums                    true: a CRC-32C of each chunk, compared when it is read
//     file_limit                        bytes of the disk for each rank
//     dropout                           0 to below 1, default 0; of the embedding's output and of
//                                       what blocks add to the residual stream
//     live_units
//     partition                         parameters | flops | time | boundaries as "0,3,6": by what
//                                       the model's layers are cut into the parts of a pipeline
//                                       (pipeline_parts.h)
//     schedule                          gpipe | 1f1b | interleaved:V | zb-h1 | zb-v: what the
//                                       stages of a pipeline do when; default 1f1b
//                                       (parallel/pipeline/schedule_kind.h)
//     tied_gradients                    apart | together: where gradients of tied weights are added
//                                       (ZeroOptions::tied_apart); default apart, as a pipeline
//                                       needs it
//     tensor_shards                     of the model's matrices (parallel/shard.h); default: one
//                                       for each tensor rank
//     sequence_parallel                 true: tensor ranks share rows, too (Megatron's name)
//     tensor_pieces                     of products that exchange rows; default: 4 with
//                                       tp_overlap_comm, else 1
//     keep_gathered                     true: of these, inputs of products are kept whole
//     tensor_sums                       fp32 | model: in which type sums over tensor ranks go from
//                                       one to another (parallel/tensor/shard_sums.h)
//     recompute                         none | block | selective | segments:K | budget:BYTES
//                                       (recompute/policy.h), before activation_checkpointing
//     recompute_times                   operations | measured: how the plan counts the time of
//                                       passes; measured: by a trial before the first step
//     stash                             none | host | file: where the inputs of block and
//                                       segments:K are between the passes, before
//                                       cpu_checkpointing; in a file by zero.offload.file
//
// No key is ignored, except those of an fp16 or bf16 section that says "enabled": false. A value
// without effect is an error, as is one that asks for what is not so ("contiguous_gradients":
// false).
//
// Errors       InvalidArgument, and Unimplemented for what DeepSpeed knows and Brigade does not
//              support yet: the key's path, its value, and what it must be, what it contradicts, or
//              the nearest key; of text that is not JSON line and column. No exceptions, whatever
//              the text.
// Paths in it begin at `folder`.
// `flags`: what is given there comes before what the file says.
absl::StatusOr<TrainConfig> ParseConfig(absl::string_view json, int ranks,
                                        absl::string_view folder = ".",
                                        const ModelParallelism& flags = {});

// The same of a file, whose path begins every error; NotFound and others as the system says.
absl::StatusOr<TrainConfig> ReadConfig(const std::string& path, int ranks,
                                       const ModelParallelism& flags = {});

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_CONFIG_H_
