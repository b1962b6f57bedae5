#include "brigade/parallel/context/ring_attention.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/enqueue.h"
#include "brigade/parallel/context/check_texts.h"
#include "brigade/parallel/context/columns_math.h"
#include "brigade/parallel/context/zigzag.h"

namespace brigade::parallel {
namespace {

using internal::RingWait;
using precision::DType;

nn::AttentionShape LocalShape(nn::AttentionShape shape, int ranks) {
  shape.context /= ranks;
  return shape;
}

// Of sums.
DType WideType(DType dtype) { return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

// The arrays of the memory that several ranks need, one behind the other; aligned for all types and
// for tiled attention.
struct Arrays {
  int64_t keys, sums, part, log_sum_exp, total;

  explicit Arrays(const nn::AttentionShape& local) {
    const auto bytes = [](int64_t elements, DType dtype) {
      return (elements * precision::SizeOf(dtype) + 255) / 256 * 256;
    };
    const int64_t size = local.rows() * local.width;
    const DType wide = WideType(local.dtype);
    keys = bytes(2 * size, local.dtype);
    sums = part = bytes(2 * size, wide);
    log_sum_exp = bytes(local.statistics(), wide);
    total = bytes(size, wide);
  }
};

// Declares all positions, of which the columns may be of some.
template <typename From, typename To>
absl::Status Move(absl::string_view name, const nn::AttentionShape& local,
                  const MoveColumns<From, To>& columns, device::Stream& stream) {
  // The last row ends with its columns.
  const int64_t last = local.rows() - 1;
  return nn::EnqueueRows({name,
                          {nn::Read(columns.from, last * columns.from_leading + columns.columns),
                           nn::Write(columns.to, last * columns.to_leading + columns.columns)}},
                         local.batch * columns.count, columns, stream);
}

}  // namespace

int64_t RingAttention::Bytes(const nn::AttentionShape& shape, int ranks, device::Device device) {
  const nn::AttentionShape local = LocalShape(shape, ranks);
  const int64_t workspace = nn::MostAttentionWorkspaceBytes(local, device);
  if (ranks == 1) return workspace;
  const Arrays arrays(local);
  return 2 * arrays.keys + 2 * arrays.sums + arrays.part + arrays.log_sum_exp + arrays.total +
         workspace;
}

collectives::CollectiveSignature RingAttention::SignatureOf(const nn::AttentionShape& shape,
                                                            int ranks) {
  return {.kind = collectives::CollectiveKind::kShift,
          .dtype = shape.dtype,
          .count = 2 * LocalShape(shape, ranks).rows() * shape.width,
          .root = 1 % ranks};
}

collectives::CollectiveSignature RingAttention::SignatureOfSums(const nn::AttentionShape& shape,
                                                                int ranks) {
  collectives::CollectiveSignature signature = SignatureOf(shape, ranks);
  signature.dtype = WideType(shape.dtype);
  return signature;
}

absl::StatusOr<std::unique_ptr<RingAttention>> RingAttention::Create(
    const nn::AttentionShape& shape, collectives::Communicator& ranks, device::Context& context) {
  if (ranks.size() > 1) {
    if (const absl::Status fits = CheckZigzag(shape.context, ranks.size()); !fits.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("ring attention: ", fits.message()));
    }
  }
  if (shape.heads < 1 || shape.width % shape.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring attention: width is ", shape.width, " for ", shape.heads, " heads"));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto memory,
                           context.Allocate(Bytes(shape, ranks.size(), context.device()),
                                            device::Purpose::kScratch, "ring of keys"));
  std::unique_ptr<RingAttention> ring(new RingAttention(shape, ranks, std::move(memory)));
  if (ranks.size() == 1) return ring;
  BRIGADE_ASSIGN_OR_RETURN(ring->comm_, context.CreateStream("ring"));
  const std::pair<std::unique_ptr<device::Event>*, const char*> events[] = {
      {&ring->packed_, "keys packed"},
      {&ring->received_, "keys received"},
      {&ring->read_, "keys read"},
      {&ring->added_, "sums added"},
      {&ring->sums_received_, "sums received"}};
  for (const auto& [event, name] : events) {
    BRIGADE_ASSIGN_OR_RETURN(*event, context.CreateEvent(name));
  }
  BRIGADE_RETURN_IF_ERROR(ranks.Reserve(SignatureOf(shape, ranks.size())));
  BRIGADE_RETURN_IF_ERROR(ranks.Reserve(SignatureOfSums(shape, ranks.size())));
  return ring;
}

RingAttention::RingAttention(const nn::AttentionShape& shape, collectives::Communicator& ranks,
                             device::Buffer memory)
    : most_texts_(shape.batch),
      shape_(shape),
      local_(LocalShape(shape, ranks.size())),
      ranks_(ranks),
      memory_(std::move(memory)) {
  const Arrays arrays(local_);
  char* next = static_cast<char*>(memory_.data());
  const auto take = [&](int64_t bytes) {
    char* const array = next;
    // One rank has the workspace alone.
    if (ranks_.size() > 1) next += bytes;
    return array;
  };
  for (char*& keys : keys_) keys = take(arrays.keys);
  for (char*& sums : sums_) sums = take(arrays.sums);
  part_ = take(arrays.part);
  part_log_sum_exp_ = take(arrays.log_sum_exp);
  total_ = take(arrays.total);
  workspace_ = next;
}

absl::Status RingAttention::SetBatch(int64_t texts) {
  BRIGADE_RETURN_IF_ERROR(CheckTexts("ring attention", texts, most_texts_));
  shape_.batch = local_.batch = texts;
  return absl::OkStatus();
}

nn::AttentionBlock RingAttention::BlockOf(int step) const {
  const int64_t positions = local_.context, chunk = positions / 2;
  // Both chunks are in ascending order, so that a rank's own block is causal as a whole.
  if (step == 0) return {local_, 0, positions, 0, positions, true};
  // From a lower rank all queries see the first chunk alone, which is before both of this rank's;
  // the second is behind them. Of a higher rank's keys the second chunk's queries see all, and the
  // first chunk's none.
  const bool is_lower = ranks_.rank() >= step;
  if (is_lower) return {local_, 0, positions, 0, chunk};
  return {local_, chunk, chunk, 0, positions};
}

absl::Status RingAttention::Wait(RingWait point, device::Event& event, device::Stream& waiter) {
  if (omitted_ == point) return absl::OkStatus();
  return waiter.Wait(event);
}

absl::Status RingAttention::Pack(const void* qkv, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(nn::WithType("ring attention", local_.dtype, [&](auto tag) {
    using T = decltype(tag);
    const int64_t width = local_.width;
    return Move<T, T>("pack_keys", local_,
                      {nn::Typed<T>(qkv) + width, 3 * width, reinterpret_cast<T*>(keys_[0]),
                       2 * width, 2 * width, local_.context, 0, local_.context, false},
                      stream);
  }));
  BRIGADE_RETURN_IF_ERROR(stream.Record(*packed_));
  return Wait(RingWait::kPacked, *packed_, *comm_);
}

absl::Status RingAttention::SendKeys(int step) {
  const auto hop = SignatureOf(shape_, ranks_.size());
  BRIGADE_RETURN_IF_ERROR(ranks_.Shift(keys_[step % 2], keys_[(step + 1) % 2], hop.count, hop.dtype,
                                       /*distance=*/1, *comm_));
  return comm_->Record(*received_);
}

absl::Status RingAttention::SendSums(int step, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(stream.Record(*added_));
  BRIGADE_RETURN_IF_ERROR(Wait(RingWait::kAdded, *added_, *comm_));
  const auto hop = SignatureOfSums(shape_, ranks_.size());
  BRIGADE_RETURN_IF_ERROR(ranks_.Shift(sums_[step % 2], sums_[(step + 1) % 2], hop.count, hop.dtype,
                                       /*distance=*/1, *comm_));
  return comm_->Record(*sums_received_);
}

absl::Status RingAttention::Forward(const void* qkv, void* out, void* log_sum_exp,
                                    device::Stream& stream) {
  if (ranks_.size() == 1) return nn::Attention(local_, qkv, out, log_sum_exp, stream);
  if (local_.batch == 0) return absl::OkStatus();
  // What is not rounded adds up in its place.
  const bool is_wide = WideType(local_.dtype) == local_.dtype;
  void* const total = is_wide ? out : total_;
  BRIGADE_RETURN_IF_ERROR(Pack(qkv, stream));
  for (int step = 0; step < ranks_.size(); ++step) {
    const char* const keys = keys_[step % 2];
    if (step > 0) BRIGADE_RETURN_IF_ERROR(Wait(RingWait::kReceived, *received_, stream));
    if (step + 1 < ranks_.size()) {
      if (step > 0) BRIGADE_RETURN_IF_ERROR(Wait(RingWait::kRead, *read_, *comm_));
      BRIGADE_RETURN_IF_ERROR(SendKeys(step));
    }
    const nn::AttentionBlock block = BlockOf(step);
    if (step == 0) {
      BRIGADE_RETURN_IF_ERROR(nn::AttentionOfBlock(block, qkv, keys, total, log_sum_exp, stream));
    } else {
      BRIGADE_RETURN_IF_ERROR(
          nn::AttentionOfBlock(block, qkv, keys, part_, part_log_sum_exp_, stream));
    }
    BRIGADE_RETURN_IF_ERROR(stream.Record(*read_));
    if (step == 0) continue;
    BRIGADE_RETURN_IF_ERROR(nn::MergeAttention(local_, block.first_query, block.queries, part_,
                                               part_log_sum_exp_, total, log_sum_exp, stream));
  }
  if (is_wide) return absl::OkStatus();
  return nn::WithType("ring attention", local_.dtype, [&](auto tag) {
    using T = decltype(tag);
    using W = nn::Wide<T>;
    const int64_t width = local_.width;
    return Move<W, T>("round_attention", local_,
                      {reinterpret_cast<const W*>(total_), width, nn::Typed<T>(out), width, width,
                       local_.context, 0, local_.context, false},
                      stream);
  });
}

absl::Status RingAttention::Backward(const void* qkv, const void* out, const void* log_sum_exp,
                                     const void* dout, void* dqkv, device::Stream& stream) {
  if (ranks_.size() == 1) {
    return nn::AttentionBackward(local_, qkv, out, log_sum_exp, dout, workspace_, dqkv, stream);
  }
  if (local_.batch == 0) return absl::OkStatus();
  // At the workspace's begin.
  void* const delta = workspace_;
  BRIGADE_RETURN_IF_ERROR(nn::AttentionDelta(local_, out, dout, delta, stream));
  BRIGADE_RETURN_IF_ERROR(Pack(qkv, stream));
  return nn::WithType("ring attention", local_.dtype, [&](auto tag) -> absl::Status {
    using T = decltype(tag);
    using W = nn::Wide<T>;
    const int64_t width = local_.width;
    for (int step = 0; step < ranks_.size(); ++step) {
      if (step > 0) BRIGADE_RETURN_IF_ERROR(Wait(RingWait::kReceived, *received_, stream));
      // Behind the sums of the last step, which this rank added to after it had read the keys that
      // lay where others come now.
      if (step + 1 < ranks_.size()) BRIGADE_RETURN_IF_ERROR(SendKeys(step));
      const nn::AttentionBlock block = BlockOf(step);
      BRIGADE_RETURN_IF_ERROR(nn::AttentionBackwardOfBlock(
          block, qkv, keys_[step % 2], log_sum_exp, delta, dout, workspace_, total_,
          /*adds=*/step > 0, step == 0 ? sums_[0] : part_, stream));
      if (step > 0) {
        BRIGADE_RETURN_IF_ERROR(Wait(RingWait::kSumsReceived, *sums_received_, stream));
        const MoveColumns<W, W> added = {reinterpret_cast<const W*>(part_),
                                         2 * width,
                                         reinterpret_cast<W*>(sums_[step % 2]),
                                         2 * width,
                                         2 * width,
                                         local_.context,
                                         block.first_key,
                                         block.keys,
                                         /*adds=*/true};
        BRIGADE_RETURN_IF_ERROR(Move("add_gradients", local_, added, stream));
      }
      BRIGADE_RETURN_IF_ERROR(SendSums(step, stream));
    }
    BRIGADE_RETURN_IF_ERROR(Wait(RingWait::kSumsReceived, *sums_received_, stream));
    T* const to = nn::Typed<T>(dqkv);
    const char* const home = sums_[ranks_.size() % 2];
    const auto round = [&](const char* from, int64_t columns, T* place) {
      const MoveColumns<W, T> rounded = {reinterpret_cast<const W*>(from),
                                         columns,
                                         place,
                                         3 * width,
                                         columns,
                                         local_.context,
                                         0,
                                         local_.context,
                                         /*adds=*/false};
      return Move("round_gradients", local_, rounded, stream);
    };
    BRIGADE_RETURN_IF_ERROR(round(total_, width, to));
    return round(home, 2 * width, to + width);
  });
}

}  // namespace brigade::parallel
