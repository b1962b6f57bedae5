#include "brigade/examples/gpt/pass_collectives.h"

#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/block_layout.h"
#include "brigade/parallel/context/ulysses.h"
#include "brigade/parallel/tensor/row_gradients.h"

namespace brigade::gpt {
namespace {

using collectives::CollectiveSignature;
using recompute::Action;

// How often an operation of a schedule exchanges what.
struct Times {
  // Sums of [rows, width] over shards, and sums of which one rank has each row.
  int64_t sums = 0, sums_of_one = 0;
  // Where ranks share rows.
  int64_t gathers = 0, block_gradients = 0, head_gradients = 0;
  int64_t cross_entropies = 0;
  // Exchanges of queries, keys and values, and of attention, of each of this rank's shards.
  int64_t qkvs = 0, attentions = 0;
};

void CountForwardBlock(Times& times) {
  times.sums += 2;
  times.gathers += 2;
  ++times.qkvs;
  ++times.attentions;
}

void CountBackwardBlock(const PassShape& shape, const BlockSaveOption& option, Times& times) {
  times.sums += 2;
  times.gathers += 2;
  ++times.block_gradients;
  ++times.qkvs;
  ++times.attentions;
  // What is made again.
  times.sums += option.drops_middle ? 1 : 0;
  times.gathers += option.drops_pointwise || !shape.keep_gathered ? 2 : 0;
  times.qkvs += option.drops_qkv ? 1 : 0;
  times.attentions += option.drops_attention ? 1 : 0;
}

Times TimesOf(const PassShape& shape, const recompute::Schedule& schedule) {
  Times times;
  for (const recompute::PlacedOperation& placed : schedule.operations) {
    const recompute::Operation& operation = placed.operation;
    if (!Computes(operation.action)) continue;
    const bool is_backward = operation.action == Action::kBackward;
    if (operation.stage == 0) {
      ++(is_backward ? times.gathers : times.sums_of_one);
    } else if (operation.stage <= shape.model.layers) {
      is_backward ? CountBackwardBlock(shape, kBlockSaveOptions[operation.option], times)
                  : CountForwardBlock(times);
    } else if (is_backward) {
      ++times.sums;
      ++times.head_gradients;
    } else {
      ++times.gathers;
      ++times.cross_entropies;
    }
  }
  return times;
}

}  // namespace

parallel::ShardSumOptions SumOptions(const PassShape& shape) {
  return {.shards = shape.shards(),
          .dtype = shape.dtype,
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

std::vector<PassCollective> CollectivesOfPasses(const PassShape& shape,
                                                const recompute::Schedule& schedule) {
  const Times times = TimesOf(shape, schedule);
  const parallel::TensorShards shards = shape.shards();
  const int64_t width = shape.model.width;
  std::vector<PassCollective> all;
  if (shape.tensor_ranks > 1) {
    const auto add = [&](const CollectiveSignature& signature, int64_t count) {
      all.push_back({&PassGroups::tensor, signature, count});
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
    const auto add = [&](int64_t parts, int64_t count) {
      all.push_back(
          {&PassGroups::context,
           parallel::Ulysses::SignatureOf(shape.AttentionOfTexts(), shape.context_ranks, parts),
           count * shards.local()});
    };
    add(3, times.qkvs);
    add(1, times.attentions);
  }
  return all;
}

absl::StatusOr<int64_t> SentInPasses(const PassShape& shape, const recompute::Schedule& schedule,
                                     const PassGroups& groups,
                                     collectives::Communicator* PassGroups::*group) {
  int64_t bytes = 0;
  for (const PassCollective& each : CollectivesOfPasses(shape, schedule)) {
    if (each.group != group) continue;
    collectives::Communicator& ranks = *(groups.*group);
    BRIGADE_ASSIGN_OR_RETURN(const auto signature, ranks.Resolve(each.signature));
    bytes += each.times * collectives::WireBytes(signature, ranks.rank(), ranks.size());
  }
  return bytes;
}

absl::StatusOr<collectives::Workspace> WorkspaceOfPasses(
    const PassShape& shape, const recompute::Schedule& schedule, const PassGroups& groups,
    collectives::Communicator* PassGroups::*group) {
  collectives::Workspace workspace;
  for (const PassCollective& each : CollectivesOfPasses(shape, schedule)) {
    if (each.group != group) continue;
    BRIGADE_ASSIGN_OR_RETURN(const auto needed, (groups.*group)->WorkspaceFor(each.signature));
    workspace = collectives::Max(workspace, needed);
  }
  return workspace;
}

}  // namespace brigade::gpt
