// A decoder on ranks that share each sample: attention over positions that others have, and the
// rows of a table of positions that are this rank's.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "brigade/device/status_macros.h"
#include "brigade/models/decoder.h"
#include "brigade/nn/attention.h"

namespace brigade::models {
namespace {

// Of whole samples and one shard's heads.
nn::AttentionShape WholeAttention(const DecoderConfig& config, const DecoderOptions& options,
                                  int64_t samples) {
  const DecoderConfig shard = ShardOf(config, options.tensor.shards);
  return {options.dtype, samples, options.whole_positions(), shard.heads, shard.attention_width()};
}

// Elements of a row of the widest table of positions.
int64_t WidestTable(const DecoderConfig& config, const DecoderOptions& options) {
  return std::max(config.width, options.lora.has_value() ? options.lora->rank : 0);
}

}  // namespace

int64_t DecoderContextBytes(const DecoderConfig& config, const DecoderOptions& options,
                            device::Device device) {
  const parallel::ContextRanks& ranks = options.context_ranks;
  if (!ranks.share()) return 0;
  const nn::AttentionShape whole = WholeAttention(config, options, options.samples);
  int64_t bytes = 0;
  if (BlocksOf(config, options) > 0) {
    bytes += ranks.is_ring() ? parallel::RingAttention::Bytes(whole, ranks.size(), device)
                             : parallel::Ulysses::Bytes(whole, ranks.size(), device);
  }
  if (CopiesPositions(config, options)) {
    bytes += options.positions * WidestTable(config, options) * precision::SizeOf(options.dtype);
  }
  return bytes;
}

bool CopiesPositions(const DecoderConfig& config, const DecoderOptions& options) {
  return options.context_ranks.is_ring() && config.architecture == Architecture::kGpt2 &&
         HasUnit(config, options, 0);
}

absl::Status Decoder::CreateContext(device::Context& context) {
  const parallel::ContextRanks& ranks = options_.context_ranks;
  if (!ranks.share()) return absl::OkStatus();
  const nn::AttentionShape whole = WholeAttention(config_, options_, options_.samples);
  if (BlocksOf(config_, options_) > 0) {
    if (ranks.is_ring()) {
      BRIGADE_ASSIGN_OR_RETURN(ring_,
                               parallel::RingAttention::Create(whole, *ranks.group, context));
    } else {
      BRIGADE_ASSIGN_OR_RETURN(ulysses_, parallel::Ulysses::Create(whole, *ranks.group, context));
    }
  }
  if (CopiesPositions(config_, options_)) {
    BRIGADE_ASSIGN_OR_RETURN(
        own_positions_, context.Allocate(Bytes(options_.positions * WidestTable(config_, options_)),
                                         device::Purpose::kScratch, "own positions"));
  }
  const auto runs = ranks.RunsOf(options_.whole_positions());
  for (int64_t sample = 0; sample < options_.samples; ++sample) {
    for (const parallel::PositionRun& run : runs) {
      row_runs_.push_back({sample * options_.positions + run.local,
                           sample * options_.whole_positions() + run.global, run.count});
    }
  }
  return absl::OkStatus();
}

absl::Span<const nn::RowRun> Decoder::RunsOf(const Batch& batch) const {
  const size_t of_sample = row_runs_.size() / static_cast<size_t>(options_.samples);
  return absl::MakeConstSpan(row_runs_).subspan(0, static_cast<size_t>(batch.samples) * of_sample);
}

std::vector<parallel::PassCollective> Decoder::ContextCollectives(const Batch& batch) const {
  const parallel::ContextRanks& ranks = options_.context_ranks;
  if (!ranks.share()) return {};
  const nn::AttentionShape whole = WholeAttention(config_, options_, batch.samples);
  const int size = ranks.size();
  // A shard's attention is a call of its own.
  const int64_t blocks = BlocksOf(config_, options_) * local_shards();
  const int64_t backward = options_.trains ? blocks : 0;
  const int64_t forward = blocks + (options_.recompute ? backward : 0);
  if (blocks == 0) return {};
  constexpr auto kContext = parallel::GridGroup::kContext;
  if (ranks.is_ring()) {
    return {{kContext, parallel::RingAttention::SignatureOf(whole, size),
             (size - 1) * (forward + backward)},
            // Memory for it is made by RingAttention::Create.
            {kContext, parallel::RingAttention::SignatureOfSums(whole, size), size * backward}};
  }
  return {{kContext, parallel::Ulysses::SignatureOf(whole, size, 3), forward + backward},
          {kContext, parallel::Ulysses::SignatureOf(whole, size, 1), forward + backward}};
}

parallel::Ulysses::Saved Decoder::SavedOf(const Call& call, const BlockArrays& arrays,
                                          int s) const {
  const int64_t columns = call.rows() * shard().attention_width();
  return {OfShard(arrays.head_qkv, s, 3 * columns), OfShard(arrays.head_out, s, columns),
          LogSumExpOf(call, arrays, s)};
}

absl::Status Decoder::Attend(const Call& call, const void* qkv, const BlockArrays& arrays, int s) {
  void* const out = OfShard(arrays.heads, s, call.rows() * shard().attention_width());
  if (ring_ != nullptr) {
    BRIGADE_RETURN_IF_ERROR(ring_->SetBatch(call.ids.batch()));
    return ring_->Forward(qkv, out, LogSumExpOf(call, arrays, s), call.stream);
  }
  if (ulysses_ != nullptr) {
    const parallel::Ulysses::Saved saved = SavedOf(call, arrays, s);
    BRIGADE_RETURN_IF_ERROR(ulysses_->SetBatch(call.ids.batch()));
    BRIGADE_RETURN_IF_ERROR(ulysses_->GatherQkv(qkv, saved, call.stream));
    return ulysses_->Attend(saved, out, call.stream);
  }
  return nn::Attention(AttentionOf(call), qkv, out, LogSumExpOf(call, arrays, s), call.stream);
}

absl::Status Decoder::AttendBackward(const Call& call, const void* qkv, const BlockArrays& arrays,
                                     int s, void* dqkv) {
  const int64_t size = call.rows() * shard().attention_width();
  const void* const out = OfShard(arrays.heads, s, size);
  const void* const dout = OfShard(memory_.dheads, s, size);
  const void* const log_sum_exp = LogSumExpOf(call, arrays, s);
  if (ring_ != nullptr) {
    BRIGADE_RETURN_IF_ERROR(ring_->SetBatch(call.ids.batch()));
    return ring_->Backward(qkv, out, log_sum_exp, dout, dqkv, call.stream);
  }
  if (ulysses_ != nullptr) {
    BRIGADE_RETURN_IF_ERROR(ulysses_->SetBatch(call.ids.batch()));
    return ulysses_->Backward(dout, SavedOf(call, arrays, s), dqkv, call.stream);
  }
  return nn::AttentionBackward(AttentionOf(call), qkv, out, log_sum_exp, dout,
                               memory_.attention_workspace, dqkv, call.stream);
}

absl::Status Decoder::CopyOwnRows(void* table, bool to_table, int64_t columns,
                                  device::Stream& stream) {
  for (const parallel::PositionRun& run :
       options_.context_ranks.RunsOf(options_.whole_positions())) {
    char* const own = static_cast<char*>(own_positions_.data()) + Bytes(run.local * columns);
    char* const rows = static_cast<char*>(table) + Bytes(run.global * columns);
    BRIGADE_RETURN_IF_ERROR(
        stream.Copy(to_table ? rows : own, to_table ? own : rows, Bytes(run.count * columns)));
  }
  return absl::OkStatus();
}

absl::StatusOr<const void*> Decoder::PositionRows(const Call& call, const void* table,
                                                  int64_t columns) {
  if (table == nullptr) return table;
  if (options_.context_ranks.is_ring()) {
    BRIGADE_RETURN_IF_ERROR(
        CopyOwnRows(const_cast<void*>(table), /*to_table=*/false, columns, call.stream));
    return own_positions_.data();
  }
  const parallel::ContextRanks& ranks = options_.context_ranks;
  const int64_t first = ranks.share() ? ranks.rank() * options_.positions : call.first.value_or(0);
  return static_cast<const char*>(table) + Bytes(first * columns);
}

absl::Status Decoder::MakePositionRows(const Call& call, nn::Gradient table, int64_t columns,
                                       absl::FunctionRef<absl::Status(nn::Gradient)> make) {
  const parallel::ContextRanks& ranks = options_.context_ranks;
  if (table.data == nullptr) return make({});
  const int64_t positions = config_.positions, count = call.ids.context();
  const auto at = [&](int64_t position) {
    return static_cast<char*>(table.data) + Bytes(position * columns);
  };
  if (!ranks.share()) {
    BRIGADE_RETURN_IF_ERROR(make(table));
    // Positions behind the batch's have no part in it.
    if (table.accumulate || positions == count) return absl::OkStatus();
    return call.stream.FillBytes(at(count), 0, Bytes((positions - count) * columns));
  }
  // Neither have those of other ranks.
  if (!table.accumulate) {
    BRIGADE_RETURN_IF_ERROR(call.stream.FillBytes(table.data, 0, Bytes(positions * columns)));
  }
  const auto runs = ranks.RunsOf(options_.whole_positions());
  if (runs.size() == 1) return make({at(runs[0].global), table.accumulate});
  if (table.accumulate) {
    BRIGADE_RETURN_IF_ERROR(CopyOwnRows(table.data, /*to_table=*/false, columns, call.stream));
  }
  BRIGADE_RETURN_IF_ERROR(make({own_positions_.data(), table.accumulate}));
  return CopyOwnRows(table.data, /*to_table=*/true, columns, call.stream);
}

}  // namespace brigade::models
