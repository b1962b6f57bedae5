#include "brigade/parallel/plan/cost.h"

#include <algorithm>
#include <utility>

#include "brigade/collectives/collective.h"
#include "brigade/parallel/plan/pipeline_time.h"
#include "brigade/zero/options.h"

namespace brigade::parallel {

using collectives::CollectiveKind;

namespace {

constexpr double kElementBytes = 2;
constexpr double kFloatBytes = 4;
// A backward pass of an operation that is bound by memory reads its operand and its gradient.
constexpr double kBackwardBytes = 1.5;
// Attention that keeps no scores computes them again: five products instead of four.
constexpr double kFusedBackwardFlops = 2.5;
// The check reads gradients of 2 bytes; the update reads them and reads and writes 12 bytes of
// state, and writes 2 of weights: README.md of optim/.
constexpr double kUpdateBytes = 30;
// In fp32: w0 is copied and w taken from it, 20 bytes; that, w0 and momentum make the next ones,
// 20; and w becomes w0, 8, and is written in 2 bytes.
constexpr double kRoundBytes = 50;
// Of what communication could hide behind, the share that it does: an assumption, and what the
// benchmarks of overlap ask for at least.
constexpr double kHiddenShare = 0.8;

RankGroup TensorGroup(const GridShape& grid) { return {1, grid.tensor}; }
RankGroup ContextGroup(const GridShape& grid) { return {grid.tensor, grid.context}; }
// The ranks that share a state; those that have a rank's slice in the other groups of its replica;
// and those that have its place in the other replicas.
RankGroup ShardsOf(const Configuration& configuration) {
  return {configuration.grid.tensor, ShardRanks(configuration)};
}
RankGroup BetweenGroups(const Configuration& configuration) {
  return {configuration.grid.tensor * ShardRanks(configuration), ShardGroups(configuration)};
}
RankGroup BetweenReplicas(const Configuration& configuration) {
  const GridShape& grid = configuration.grid;
  return {grid.tensor * grid.context * grid.data / configuration.replicas, configuration.replicas};
}
RankGroup PipelineGroup(const GridShape& grid) {
  return {grid.tensor * grid.context * grid.data, grid.pipeline};
}

// The elements of a rank's rows for a micro-batch: its positions of all texts.
double Tokens(const Transformer& model, const Configuration& configuration) {
  return static_cast<double>(model.context) * configuration.micro_batch /
         configuration.grid.context;
}

}  // namespace

PassTime& PassTime::operator+=(const PassTime& other) {
  compute += other.compute;
  tensor += other.tensor;
  context += other.context;
  return *this;
}

PassTime operator*(double count, const PassTime& pass) {
  return {count * pass.compute, count * pass.tensor, count * pass.context};
}

PassTime CostModel::AttentionForward(const Configuration& configuration) const {
  const GridShape& grid = configuration.grid;
  const Device& device = machine_.device;
  const auto h = static_cast<double>(model_.width),
             kv = static_cast<double>(model_.key_value_width()),
             s = static_cast<double>(model_.context);
  const double tokens = Tokens(model_, configuration), t = grid.tensor;
  const auto heads = static_cast<double>(model_.heads) / t;
  if (execution_.fused_attention) {
    const double flops = 4 * tokens * (s / 2) * h / t;
    const double bytes = kElementBytes * tokens * (2 * h + 2 * kv) / t;
    return {std::max(flops / (device.product_efficiency * device.peak_flops),
                     MemorySeconds(device, bytes))};
  }
  const double head = h / static_cast<double>(model_.heads);
  const double batches = configuration.micro_batch * heads;
  const double rows = s / grid.context;
  // Softmax reads and writes scores, dropout too, and writes its mask.
  const double pointwise = 9 * heads * s * tokens;
  return {ProductSeconds(device, {rows, s, head, batches}) +
          ProductSeconds(device, {rows, head, s, batches}) + MemorySeconds(device, pointwise)};
}

double CostModel::TensorSeconds(const Configuration& configuration, bool backward) {
  const RankGroup group = TensorGroup(configuration.grid);
  const double elements = Tokens(model_, configuration) * static_cast<double>(model_.width);
  const double sum_bytes = elements * execution_.tensor_sum_bytes;
  if (!execution_.sequence_parallel) {
    return 2 * groups_.Collective(group, CollectiveKind::kAllReduce, sum_bytes);
  }
  // Backward the inputs of products by columns are gathered again.
  const int gathers = backward ? 4 : 2;
  return gathers * groups_.Collective(group, CollectiveKind::kAllGather, elements * kElementBytes) +
         2 * groups_.Collective(group, CollectiveKind::kReduceScatter, sum_bytes);
}

double CostModel::ContextSeconds(const Configuration& configuration, bool backward,
                                 double attention) {
  const GridShape& grid = configuration.grid;
  if (grid.context == 1) return 0;
  const RankGroup group = ContextGroup(grid);
  const double tokens = Tokens(model_, configuration);
  const double c = grid.context;
  const auto h = static_cast<double>(model_.width) / grid.tensor,
             kv = static_cast<double>(model_.key_value_width()) / grid.tensor;
  if (execution_.context_method == ContextMethod::kUlysses) {
    return groups_.AllToAll(group, kElementBytes * tokens * (h + 2 * kv)) +
           groups_.AllToAll(group, kElementBytes * tokens * h);
  }
  // Backward the gradients of keys and values go round too, in fp32, and one hop further.
  const double bytes = tokens * 2 * kv * (kElementBytes + (backward ? kFloatBytes : 0));
  const double hops = backward ? c : c - 1;
  return hops * std::max(0.0, groups_.Shift(group, bytes) - kHiddenShare * attention / c);
}

PassTimes CostModel::TimesOfLayer(const Configuration& configuration) {
  const GridShape& grid = configuration.grid;
  const Device& device = machine_.device;
  const auto h = static_cast<double>(model_.width), f = static_cast<double>(model_.mlp()),
             kv = static_cast<double>(model_.key_value_width());
  const double tokens = Tokens(model_, configuration), t = grid.tensor;
  const double rows = execution_.sequence_parallel ? t : 1;
  const bool accumulates = MicroBatches(configuration, execution_) > 1;
  // The block's products over rows of a rank. The gradient of a weight reads and writes sums in
  // fp32 where there are several micro-batches.
  const auto seconds = [&](bool is_weight_gradient) {
    double sum = 0;
    for (const auto& [n, k] :
         {std::pair((h + 2 * kv) / t, h), std::pair(h, h / t),
          std::pair((model_.is_llama ? 2 : 1) * f / t, h), std::pair(h, f / t)}) {
      const double more_bytes = is_weight_gradient && accumulates ? 2 * kFloatBytes * n * k : 0;
      sum += ProductSeconds(device, {tokens, n, k, 1, more_bytes});
    }
    return sum;
  };
  const double products = seconds(/*is_weight_gradient=*/false);
  // Norms read and write; residuals read two and write one, and with dropout a mask. The MLP's
  // activation, and rotations of positions.
  const double whole_bytes = 2 * 4 * h + 2 * (model_.is_llama ? 6 : 7) * h;
  const double cut_bytes = model_.is_llama ? 6 * f + 4 * (h + kv) : 4 * f;
  const double pointwise = MemorySeconds(device, tokens * (whole_bytes / rows + cut_bytes / t));
  const PassTime attention = AttentionForward(configuration);

  PassTimes times;
  times.forward.compute = products + pointwise + attention.compute;
  times.forward.tensor = TensorSeconds(configuration, /*backward=*/false);
  times.forward.context = ContextSeconds(configuration, /*backward=*/false, attention.compute);

  const double attention_backward =
      (execution_.fused_attention ? kFusedBackwardFlops : 2) * attention.compute;
  times.backward_input.compute = products + kBackwardBytes * pointwise + attention_backward;
  times.backward_input.tensor = TensorSeconds(configuration, /*backward=*/true);
  times.backward_input.context =
      ContextSeconds(configuration, /*backward=*/true, attention_backward);
  times.backward_weight.compute = seconds(/*is_weight_gradient=*/true);
  if (configuration.recomputation == Recomputation::kFull) {
    times.backward_input += times.forward;
  } else if (configuration.recomputation == Recomputation::kSelective &&
             !execution_.fused_attention) {
    times.backward_input += attention;
  }
  return times;
}

PassTimes CostModel::TimesOfHead(const Configuration& configuration) {
  const GridShape& grid = configuration.grid;
  const Device& device = machine_.device;
  const auto h = static_cast<double>(model_.width), v = static_cast<double>(model_.vocabulary);
  const double tokens = Tokens(model_, configuration), t = grid.tensor;
  const double products = ProductSeconds(device, {tokens, v / t, h});
  // The loss reads logits in fp32 twice, and its gradient is written once.
  const double loss_bytes = tokens * v / t * kFloatBytes;
  const double elements = tokens * h;
  PassTimes times;
  times.forward.compute = products + MemorySeconds(device, 2 * loss_bytes);
  times.forward.tensor = execution_.sequence_parallel
                             ? groups_.Collective(TensorGroup(grid), CollectiveKind::kAllGather,
                                                  elements * kElementBytes)
                             : 0;
  times.backward_input.compute = products + MemorySeconds(device, loss_bytes);
  times.backward_input.tensor = groups_.Collective(
      TensorGroup(grid),
      execution_.sequence_parallel ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce,
      elements * execution_.tensor_sum_bytes);
  times.backward_weight.compute = products;
  return times;
}

double CostModel::TransferSeconds(const Configuration& configuration) {
  const GridShape& grid = configuration.grid;
  if (grid.pipeline == 1) return 0;
  const double bytes =
      Tokens(model_, configuration) * static_cast<double>(model_.width) * kElementBytes;
  // Ranks of a tensor group hold the same, or each its own rows: each sends 1/t.
  double hop = groups_.Shift(PipelineGroup(grid), bytes / grid.tensor);
  if (!execution_.sequence_parallel) {
    hop += groups_.Collective(TensorGroup(grid), CollectiveKind::kAllGather, bytes);
  }
  return parallel::TransferSeconds(ShapeOf(configuration, execution_), hop);
}

double CostModel::DataSeconds(const Configuration& configuration, const ZeroUse& zero,
                              double forward, double backward) {
  const GridShape& grid = configuration.grid;
  const RankGroup group = ShardsOf(configuration);
  const auto m = static_cast<double>(MicroBatches(configuration, execution_));
  const int stage = configuration.zero_stage;
  const auto buckets = static_cast<double>(zero.buckets);
  const auto seconds = [&](CollectiveKind kind, double element_bytes) {
    return buckets * groups_.Collective(group, kind, zero.elements * element_bytes / buckets);
  };
  const bool at_boundary = stage < 2 && m > 1;
  const double gradient_bytes = at_boundary ? kFloatBytes : kElementBytes;
  const double reduction = seconds(CollectiveKind::kReduceScatter, gradient_bytes);
  const double gathering =
      seconds(CollectiveKind::kAllGather, stage == 0 ? gradient_bytes : kElementBytes);
  // What runs beside passes, in how much time, and what comes after them.
  double beside = 0, passes = 0, after = 0, least = reduction / buckets;
  switch (stage) {
    case 0:
      beside = reduction + gathering;
      passes = backward;
      least = beside / buckets;
      break;
    case 1:
      beside = reduction;
      passes = backward;
      after = gathering;
      break;
    case 2:
      beside = m * reduction;
      passes = m * (forward + backward) - forward;
      after = gathering;
      break;
    default:
      beside = WeightGathers(ShapeOf(configuration, execution_)) * gathering + m * reduction;
      passes = m * (forward + backward);
      least = (gathering + reduction) / buckets;
  }
  // Groups sum slices, in stage 0 all, bucket by bucket behind the last pass's reduction.
  const double slices = stage == 0 ? 1 : ShardRanks(configuration);
  const double between =
      buckets *
      groups_.Collective(BetweenGroups(configuration), CollectiveKind::kAllReduce,
                         zero.elements / slices * (m > 1 ? kFloatBytes : kElementBytes) / buckets);
  double exposed = beside + between;
  if (execution_.overlap_data) {
    exposed = std::max(least + between / buckets, exposed - kHiddenShare * passes);
    if (between > 0) {
      const double last = (stage == 0 ? beside : reduction) + between;
      exposed = std::max(exposed, last - kHiddenShare * backward);
    }
  }

  double tied = 0;
  if (grid.pipeline > 1 && !model_.is_llama) {
    const RankGroup ends = {PipelineGroup(grid).stride * (grid.pipeline - 1), 2};
    tied = groups_.Collective(
        ends, CollectiveKind::kAllReduce,
        gradient_bytes * static_cast<double>(EmbeddingParameters(model_)) / grid.tensor);
  }
  const auto ranks = static_cast<int>(grid.ranks()) / configuration.replicas;
  const double statistics =
      groups_.Collective({1, ranks}, CollectiveKind::kAllGather, 16.0 * ranks);
  return exposed + after + tied + statistics;
}

double CostModel::RoundSeconds(const Configuration& configuration, const ZeroUse& zero) {
  if (configuration.replicas == 1) return 0;
  const int stage = configuration.zero_stage;
  const auto buckets = static_cast<double>(zero.buckets);
  const double elements = zero.elements / (stage == 0 ? 1 : ShardRanks(configuration));
  double seconds =
      buckets * groups_.Collective(BetweenReplicas(configuration), CollectiveKind::kAllReduce,
                                   elements * execution_.round_bytes / buckets);
  if (stage == 1 || stage == 2) {
    seconds += buckets * groups_.Collective(ShardsOf(configuration), CollectiveKind::kAllGather,
                                            zero.elements * kElementBytes / buckets);
  }
  seconds += MemorySeconds(machine_.device, kRoundBytes * elements);
  return seconds / static_cast<double>(execution_.replica_period);
}

StepTime CostModel::TimeOf(const Configuration& configuration, const ZeroUse& zero) {
  const GridShape& grid = configuration.grid;
  const PassTimes layer = TimesOfLayer(configuration), head = TimesOfHead(configuration);
  const auto m = static_cast<double>(MicroBatches(configuration, execution_));
  const double p = grid.pipeline;
  const auto pass_of = [](const PassTimes& times) {
    PassTime pass = times.forward;
    pass += times.backward_input;
    pass += times.backward_weight;
    return pass;
  };
  // The fullest stage, or the last one with the logits.
  const auto most = static_cast<double>(LayersOfStage(model_, configuration)),
             last = static_cast<double>(LayersOfLastStage(model_, configuration));
  PassTime longest = last * pass_of(layer);
  longest += pass_of(head);
  if (const PassTime fullest = most * pass_of(layer); fullest.total() > longest.total()) {
    longest = fullest;
  }
  const double layers = static_cast<double>(model_.layers) / p;
  const StageTimes mean = {
      layers * layer.forward.total() + head.forward.total() / p,
      layers * layer.backward_input.total() + head.backward_input.total() / p,
      layers * layer.backward_weight.total() + head.backward_weight.total() / p,
  };
  StepTime time;
  time.compute = m * longest.compute;
  time.tensor = m * longest.tensor;
  time.context = m * longest.context;
  time.transfer = TransferSeconds(configuration);
  time.bubble = BubbleSeconds(ShapeOf(configuration, execution_), mean);
  time.data =
      DataSeconds(configuration, zero, mean.forward, mean.backward_input + mean.backward_weight);
  const double sharers = configuration.zero_stage == 0 ? 1.0 : ShardRanks(configuration);
  time.optimizer = MemorySeconds(machine_.device, kUpdateBytes * zero.elements / sharers);
  time.round = RoundSeconds(configuration, zero);
  return time;
}

}  // namespace brigade::parallel
