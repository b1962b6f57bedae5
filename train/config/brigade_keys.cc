#include <iterator>

#include "brigade/collectives/compressed/power_sgd_all_reduce.h"
#include "brigade/device/file/file_options.h"
#include "brigade/kernels/orthogonalize/orthogonalize_math.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/parallel/tensor/row_pieces.h"
#include "brigade/recompute/policy.h"
#include "brigade/train/config/config_sections.h"

namespace brigade::train {
namespace {

using collectives::Algorithm;
using collectives::Reduction;
using device::FileEngineKind;
using kernels::AtMinimum;
using zero::Accumulation;
using zero::GradientCompression;

constexpr NumberRange kMany = {1.0, 1 << 20, "1 to 2^20"};
constexpr NumberRange kShare = {0x1p-149, 1.0, "more than 0, up to 1"};
constexpr NumberRange kPowerIterations = {1.0, collectives::kMostPowerIterations, "1 to 8"};
constexpr NumberRange kFactorRanks = {1.0, kernels::kMaxLowRank, "1 to 128"};
static_assert(kernels::kMaxLowRank == 128);

Keys ExchangeKeys(Settings& s) {
  return {
      {"accumulation",
       OneOf<Accumulation>(&s.zero.accumulation,
                           {{"every_micro_batch", Accumulation::kEveryMicroBatch},
                            {"at_boundary", Accumulation::kAtBoundary}}),
       "when gradients of micro-batches are reduced"},
      {"algorithm",
       OneOf<Algorithm>(&s.zero.algorithm, {{"auto", Algorithm::kAuto},
                                            {"direct", Algorithm::kDirect},
                                            {"ring", Algorithm::kRing},
                                            {"bidirectional_ring", Algorithm::kBidirectionalRing},
                                            {"halving_doubling", Algorithm::kHalvingDoubling},
                                            {"hierarchical", Algorithm::kHierarchical},
                                            {"double_tree", Algorithm::kDoubleTree},
                                            {"parameter_server", Algorithm::kParameterServer},
                                            {"native", Algorithm::kNative}}),
       "by which ranks exchange; `native` with NCCL"},
      {"reduction",
       OneOf<Reduction>(&s.zero.reduction, {{"rounded_once", Reduction::kRoundedOnce},
                                            {"rounded_per_hop", Reduction::kRoundedPerHop},
                                            {"fp32_partials", Reduction::kFp32Partials}}),
       "where sums are rounded; `rounded_once` of `auto`, `direct` and `parameter_server` alone, "
       "`fp32_partials` not of `native`"},
      {"topology", Text(&s.topology),
       "the path of a machine's figures, by which `auto` chooses, and of its nodes; a relative one "
       "begins at the config's folder"},
      {"ranks_per_node", Whole(&s.ranks_per_node, kMany),
       "nodes of so many ranks, instead of the machine's; `hierarchical` needs nodes"},
      {"gradient_compression",
       OrChosen(OneOf<std::optional<GradientCompression>>(
                    &s.gradient_compression, {{"none", std::nullopt},
                                              {"one_bit", GradientCompression::kOneBit},
                                              {"power_sgd", GradientCompression::kPowerSgd},
                                              {"top_k", GradientCompression::kTopK}}),
                &s.open.compression),
       "in stages 0 to 2 ranks exchange gradients in fewer bytes, and keep what messages leave "
       "out: `one_bit` as signs, between nodes alone where these are of one size "
       "(`ranks_per_node`, "
       "`topology`), `power_sgd` as factors "
       "of a low rank, `top_k` the greatest alone "
       "(`docs/compression.md`), \"auto\" as signs where the cost model says that they pay; "
       "`--gradient_compression` goes before it"},
      {"gradient_compression_density", Number(&s.compression.density, kShare),
       "of `top_k`: the share of a bucket's elements that each rank sends"},
      {"gradient_compression_rank", Whole(&s.compression.rank, kFactorRanks),
       "of `power_sgd`: columns of the factors of a matrix"},
      {"gradient_compression_iterations", Whole(&s.compression.iterations, kPowerIterations),
       "of `power_sgd`: how often factors of a step are made and exchanged"},
      {"gradient_compression_start_step", Whole(&s.compression.start_step, kCountOrNone),
       "exact steps before that"},
      {"live_units", Whole(&s.zero.live_units, kMany),
       "layers whose weights are gathered at a time, from stage 2 on"},
      {"at_minimum_loss_scale",
       OneOf<AtMinimum>(&s.loss_scaler.at_minimum,
                        {{"error", AtMinimum::kError}, {"clamp", AtMinimum::kClamp}}),
       "what an overflow does at the smallest scale"},
      {"delay_update", Flag(&s.zero.offload.delay_update),
       "true: the host's update comes a step late"},
      {"delay_warm_up", Whole(&s.zero.offload.delay_warm_up, kCountOrNone),
       "exact steps before that"},
  };
}

// Of what is in files (device/file/).
Keys FileKeys(Settings& s) {
  device::FileOptions& file = s.zero.offload.file;
  return {
      {"file_checksums", Flag(&file.checksums), "true: a CRC-32C of each chunk is compared"},
      {"file_direct", Flag(&file.direct), "false: through the page cache"},
      {"file_directory", Text(&s.file_directory),
       "of `stash` \"file\", or instead of `nvme_path`; a relative one begins at the config's "
       "folder"},
      {"file_engine",
       OneOf<FileEngineKind>(&file.engine, {{"auto", FileEngineKind::kAuto},
                                            {"io_uring", FileEngineKind::kIoUring},
                                            {"threads", FileEngineKind::kThreads}}),
       "how files are read and written"},
      {"file_limit", Otherwise(Whole(&s.zero.offload.file_limit_bytes, kCount), "none"),
       "bytes of the disk for each rank"},
  };
}

// Of ranks that share a model.
Keys SharingKeys(Settings& s) {
  return {
      {"tensor_shards", Otherwise(Whole(&s.tensor_shards, kRanks), "one for each tensor rank"),
       "of the model's matrices: with the same shards bits are the same for any tensor ranks"},
      {"tensor_pieces",
       Otherwise(Whole(&s.tensor_pieces, {1.0, parallel::kMostPieces, "1 to 256"}),
                 "4 with tp_overlap_comm, else 1"),
       "of products that exchange rows"},
      {"tensor_sums",
       TypeNames(OneOf<parallel::SumWire>(&s.sum_wire, {{"fp32", parallel::SumWire::kFloat32},
                                                        {"model", parallel::SumWire::kModel}})),
       "the type in which sums go from one tensor rank to another"},
      {"sequence_parallel", Flag(&s.sequence_parallel), "true: tensor ranks share rows, too"},
      {"keep_gathered", Flag(&s.keep_gathered),
       "true: with `sequence_parallel` inputs of products are kept whole"},
      {"context_exchange",
       Otherwise(
           OneOf<std::optional<ContextExchange>>(
               &s.context_exchange, {std::begin(kContextExchanges), std::end(kContextExchanges)}),
           "\"ulysses\""),
       "how ranks that share texts attend; Megatron's names are `a2a` and `p2p`"},
      {"partition",
       Otherwise(Parsed(&s.partition, parallel::ParsePartition,
                        R"(parameters, flops, time or ascending boundaries from 0 on, as "0,3,6")"),
                 "\"parameters\""),
       "by what layers are dealt out to the stages of a pipeline"},
      {"shard_ranks",
       Otherwise(Whole(&s.zero.shard_ranks, kRanks), "all ranks with the same weights"),
       "ranks that share a state (`zero_optimization.stage`); of several such groups each has a "
       "whole one, and they sum gradients once a step"},
      {"schedule",
       Otherwise(Parsed(&s.pipeline_schedule, parallel::ParseSchedule,
                        "gpipe, 1f1b, interleaved:V with V from 2 on, zb-h1 or zb-v"),
                 "\"1f1b\""),
       "what the stages of a pipeline do when"},
      {"tied_gradients", OneOf<bool>(&s.zero.tied_apart, {{"apart", true}, {"together", false}}),
       "where gradients of tied weights are added; a pipeline needs them apart"},
  };
}

// Of copies of the training that update locally.
Keys ReplicaKeys(Settings& s) {
  replicas::OuterOptions& outer = s.outer;
  return {
      {"replicas", Otherwise(Whole(&s.replicas, kRanks), "the ranks train one"),
       "whole copies of the training, among which the ranks are shared out; each updates locally "
       "(`docs/replicas.md`)"},
      {"replica_period", Whole(&outer.period, kMany), "steps between two rounds of the replicas"},
      {"replica_fragments", Whole(&outer.fragments, kMany),
       "parts of the weights that have their rounds at different times of the period"},
      {"replica_delay", Whole(&outer.delay, kCountOrNone),
       "steps until the sum of a round is used; below `replica_period` / `replica_fragments`"},
      {"replica_mix", Number(&outer.mix, kBelowOne),
       "the share of its own weights that a round leaves to a replica"},
      {"replica_start_step", Whole(&outer.start_step, kCountOrNone),
       "so many steps are followed each by a mean of all weights"},
      {"replica_wire",
       TypeNames(OneOf<precision::DType>(&outer.wire, {{"fp32", precision::DType::kFloat32},
                                                       {"fp16", precision::DType::kFloat16},
                                                       {"bf16", precision::DType::kBFloat16}})),
       "the type in which moves go from one replica to another"},
      {"outer_lr", Number(&outer.lr, kPositive), "the rate of a round; 1: the mean of weights"},
      {"outer_momentum", Number(&outer.momentum, kBelowOne), "of rounds; 0: none"},
      {"outer_nesterov", Flag(&outer.nesterov), "true: the momentum of the next round"},
  };
}

Keys ActivationKeys(Settings& s) {
  return {
      {"dropout", Number(&s.dropout, kBelowOne),
       "the share that is dropped of the embedding's output and of what blocks add"},
      {"recompute",
       Otherwise(Parsed(&s.recompute, recompute::ParsePolicy,
                        "none, block, selective, segments:K or budget:BYTES"),
                 "as activation_checkpointing says"),
       "which activations the backward pass makes again (`docs/recomputation.md`)"},
      {"recompute_times",
       OneOf<RecomputeTimes>(&s.recompute_times, {{"operations", RecomputeTimes::kOperations},
                                                  {"measured", RecomputeTimes::kMeasured}}),
       "by what a plan counts the time of passes; `measured`: by a trial"},
      {"stash",
       Otherwise(OneOf<std::optional<recompute::StashTier>>(
                     &s.stash, {{"none", recompute::StashTier::kNone},
                                {"host", recompute::StashTier::kHost},
                                {"file", recompute::StashTier::kFile}}),
                 "as cpu_checkpointing says"),
       "where inputs that are kept are between the passes"},
  };
}

// Of what is looked at, or saved, beside the training.
Keys CheckKeys(Settings& s) {
  return {
      {"checkpoint_staging_bytes", Whole(&s.checkpoint_staging_bytes, kCount),
       "of page-locked memory on each rank, in which a save waits for the disk; with a multiple of "
       "4 MiB that is no less than the rank owns of weights and optimizer state no step waits for "
       "it (`docs/checkpoints.md`)"},
      {"verify_replicas", Whole(&s.verify_replicas, kCountOrNone),
       "steps between two comparisons of what several ranks have alike (`docs/digests.md`); 0: "
       "none. `--verify_replicas` goes before it"},
  };
}

}  // namespace

Keys OwnKeys(Settings& s) {
  Keys keys;
  for (const Keys& part : {ExchangeKeys(s), ActivationKeys(s), SharingKeys(s), ReplicaKeys(s),
                           FileKeys(s), CheckKeys(s)}) {
    keys.insert(keys.end(), part.begin(), part.end());
  }
  return keys;
}

}  // namespace brigade::train
