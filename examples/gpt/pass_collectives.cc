#include "brigade/examples/gpt/pass_collectives.h"

#include "brigade/collectives/collective.h"
#include "brigade/examples/gpt/block_layout.h"
#include "brigade/parallel/context/ring_attention.h"
#include "brigade/parallel/context/ulysses.h"
#include "brigade/parallel/tensor/row_gradients.h"

namespace brigade::gpt {
namespace {

using collectives::CollectiveSignature;
using parallel::GridGroup;
using parallel::PassCollective;
using recompute::Action;

// How often the operations of a schedule exchange what.
struct Times {
  // Sums of [rows, width] over shards, and sums of which one rank has each row.
  int64_t sums = 0, sums_of_one = 0;
  // Where ranks share rows.
  int64_t gathers = 0, block_gradients = 0, head_gradients = 0;
  int64_t cross_entropies = 0;
  // Of each of this rank's shards: exchanges of queries, keys and values for heads; attentions of
  // both passes; and backward ones alone.
  int64_t qkvs = 0, attentions = 0, attention_gradients = 0;
};

void CountForwardBlock(bool has_output, Times& times) {
  times.sums += has_output ? 2 : 1;
  times.gathers += 2;
  ++times.qkvs;
  ++times.attentions;
}

void CountBackwardBlock(const PassShape& shape, const BlockSaveOption& option, bool is_split,
                        Times& times) {
  times.sums += 2;
  // Of the gradients of what MLP and attention add; for their weights' again.
  times.gathers += is_split ? 4 : 2;
  ++times.block_gradients;
  ++times.qkvs;
  ++times.attentions;
  ++times.attention_gradients;
  // What is made again.
  times.sums += option.drops_middle ? 1 : 0;
  times.gathers += option.drops_pointwise || !shape.keep_gathered ? 2 : 0;
  times.qkvs += option.drops_qkv ? 1 : 0;
  times.attentions += option.drops_attention ? 1 : 0;
}

void CountChunk(const PassShape& shape, const StageRange& stages,
                const recompute::Schedule& schedule, bool is_split, Times& times) {
  const int head = StagesOf(shape.model) - 1;
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    const recompute::Operation& operation = schedule.operations[i].operation;
    const int stage = stages.first + operation.stage;
    if (!Computes(operation.action) || stage >= stages.end) continue;
    const bool is_backward = operation.action == Action::kBackward;
    // The output of a chunk's last stage is not made again.
    const bool has_output = i < schedule.first_of_backward || stage + 1 < stages.end;
    if (stage == 0) {
      if (is_backward) {
        ++times.gathers;
      } else if (has_output) {
        ++times.sums_of_one;
      }
    } else if (stage < head) {
      is_backward ? CountBackwardBlock(shape, kBlockSaveOptions[operation.option], is_split, times)
                  : CountForwardBlock(has_output, times);
    } else if (is_backward) {
      ++times.sums;
      ++times.head_gradients;
    } else {
      ++times.gathers;
      ++times.cross_entropies;
    }
  }
}

Times TimesOf(const PassShape& shape, const PartPlan& plan) {
  Times times;
  for (size_t c = 0; c < plan.schedules.size(); ++c) {
    CountChunk(shape, plan.part.chunks()[c], plan.schedules[c], plan.slots.splits_backward(),
               times);
  }
  return times;
}

}  // namespace

parallel::ShardSumOptions SumOptions(const PassShape& shape) {
  return {.shards = shape.shards(),
          .dtype = shape.dtype,
          .wire = shape.sum_wire,
          .part = shape.Pieces().part,
          .elements = shape.rows() * shape.model.width,
          .pieces = shape.model.tensor_pieces,
          .rows = shape.rows(),
          .overlap = shape.tensor_overlap};
}

parallel::VocabularyCrossEntropyOptions CrossEntropyOptions(const PassShape& shape) {
  return {.shards = shape.shards(), .dtype = shape.dtype, .rows = shape.rows()};
}

parallel::RowGradientOptions RowGradientOptionsOf(const PassShape& shape) {
  return {.shards = shape.shards(),
          .dtype = shape.dtype,
          .elements = 6 * shape.model.width,
          .pieces = shape.Pieces().count()};
}

std::vector<PassCollective> CollectivesOfPasses(const PassShape& shape, const PartPlan& plan) {
  const Times times = TimesOf(shape, plan);
  const parallel::TensorShards shards = shape.shards();
  const int64_t width = shape.model.width;
  std::vector<PassCollective> all;
  if (shape.tensor_ranks > 1) {
    const auto add = [&](const CollectiveSignature& signature, int64_t count) {
      all.push_back({GridGroup::kTensor, signature, count});
    };
    const parallel::ShardSumOptions sums = SumOptions(shape);
    const parallel::RowPieces pieces = shape.Pieces();
    for (int p = 0; p < pieces.count(); ++p) {
      const int64_t elements = pieces.Piece(p).count * width;
      add(parallel::ShardSums::SignatureOf(sums, elements), times.sums);
      if (!shape.shares_rows()) continue;
      add(parallel::ShardSums::SignatureOfOne(sums, elements), times.sums_of_one);
      add(parallel::ShardSums::SignatureOfGather(sums, elements), times.gathers);
    }
    if (!shape.shares_rows()) {
      add(parallel::ShardSums::SignatureOfOne(sums, sums.elements), times.sums_of_one);
    }
    add(parallel::VocabularyCrossEntropy::SignatureOf(CrossEntropyOptions(shape), shape.rows()),
        times.cross_entropies);
    if (shape.shares_rows()) {
      const auto gradients = [&](int64_t elements) {
        return parallel::RowGradients::SignatureOf(RowGradientOptionsOf(shape), elements);
      };
      add(gradients(RowGradientOptionsOf(shape).elements), times.block_gradients);
      add(gradients(2 * width), times.head_gradients);
    }
  }
  if (shape.context_ranks > 1) {
    const nn::AttentionShape texts = shape.AttentionOfTexts();
    const int ranks = shape.context_ranks;
    const auto add = [&](const CollectiveSignature& signature, int64_t count) {
      all.push_back({GridGroup::kContext, signature, count * shards.local()});
    };
    if (shape.is_ring()) {
      add(parallel::RingAttention::SignatureOf(texts, ranks), (ranks - 1) * times.attentions);
      add(parallel::RingAttention::SignatureOfSums(texts, ranks),
          ranks * times.attention_gradients);
    } else {
      add(parallel::Ulysses::SignatureOf(texts, ranks, 3), times.qkvs);
      add(parallel::Ulysses::SignatureOf(texts, ranks, 1), times.attentions);
    }
  }
  return all;
}

}  // namespace brigade::gpt
