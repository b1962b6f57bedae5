#include "brigade/parallel/context/ulysses.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/enqueue.h"
#include "brigade/parallel/context/check_texts.h"
#include "brigade/parallel/context/head_exchange_math.h"

namespace brigade::parallel {
namespace {

nn::AttentionShape LocalShape(nn::AttentionShape shape, int ranks) {
  shape.heads /= ranks;
  shape.width /= ranks;
  return shape;
}

// Of an array of `parts` matrices, of one rank's positions or of its heads; aligned for all types
// and for tiled attention.
int64_t ArrayBytes(const nn::AttentionShape& shape, int ranks, int64_t parts) {
  const int64_t bytes = shape.rows() * parts * shape.width / ranks * precision::SizeOf(shape.dtype);
  return (bytes + 255) / 256 * 256;
}

}  // namespace

int64_t Ulysses::Bytes(const nn::AttentionShape& shape, int ranks, device::Device device) {
  return 3 * ArrayBytes(shape, ranks, 3) + ArrayBytes(shape, ranks, 1) +
         nn::MostAttentionWorkspaceBytes(LocalShape(shape, ranks), device);
}

collectives::CollectiveSignature Ulysses::SignatureOf(const nn::AttentionShape& shape, int ranks,
                                                      int64_t parts) {
  return {.kind = collectives::CollectiveKind::kAllToAll,
          .dtype = shape.dtype,
          .count = shape.rows() * parts * shape.width / ranks / ranks};
}

absl::StatusOr<std::unique_ptr<Ulysses>> Ulysses::Create(const nn::AttentionShape& shape,
                                                         collectives::Communicator& ranks,
                                                         device::Context& context) {
  for (const auto& [name, size] :
       {std::pair<const char*, int64_t>{"heads", shape.heads}, {"positions", shape.context}}) {
    if (size < 1 || size % ranks.size() != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "ulysses: ", size, " ", name, " cannot be cut over ", ranks.size(), " context ranks"));
    }
  }
  if (shape.width % shape.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ulysses: width is ", shape.width, " for ", shape.heads, " heads"));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto memory,
                           context.Allocate(Bytes(shape, ranks.size(), context.device()),
                                            device::Purpose::kScratch, "exchanges of heads"));
  BRIGADE_RETURN_IF_ERROR(ranks.Reserve(SignatureOf(shape, ranks.size(), 3)));
  return std::unique_ptr<Ulysses>(new Ulysses(shape, ranks, std::move(memory)));
}

Ulysses::Ulysses(const nn::AttentionShape& shape, collectives::Communicator& ranks,
                 device::Buffer memory)
    : most_texts_(shape.batch),
      shape_(shape),
      local_(LocalShape(shape, ranks.size())),
      ranks_(ranks),
      memory_(std::move(memory)) {
  const int64_t of_three = ArrayBytes(shape, ranks.size(), 3);
  sent_ = static_cast<char*>(memory_.data());
  received_ = sent_ + of_three;
  dqkv_ = received_ + of_three;
  dout_ = dqkv_ + of_three;
  workspace_ = dout_ + ArrayBytes(shape, ranks.size(), 1);
}

absl::Status Ulysses::SetBatch(int64_t texts) {
  BRIGADE_RETURN_IF_ERROR(CheckTexts("ulysses", texts, most_texts_));
  shape_.batch = local_.batch = texts;
  return absl::OkStatus();
}

absl::Status Ulysses::Exchange(int64_t parts, PieceOrder from_order, const void* from,
                               PieceOrder to_order, void* to, device::Stream& stream) {
  return nn::WithType("ulysses", shape_.dtype, [&](auto tag) {
    using T = decltype(tag);
    const int ranks = ranks_.size();
    const int64_t positions = shape_.context / ranks;
    const auto move = [&](PieceOrder order, const void* in, PieceOrder wanted, void* out) {
      const MovePieces<T> pieces = {nn::Typed<T>(in), nn::Typed<T>(out), order, wanted,      ranks,
                                    shape_.batch,     positions,         parts, local_.width};
      const int64_t rows = ranks * shape_.batch * positions * parts;
      return nn::EnqueueRows({"move_pieces",
                              {nn::Read(pieces.from, rows * pieces.columns),
                               nn::Write(pieces.to, rows * pieces.columns)}},
                             rows, pieces, stream);
    };
    const int64_t count = shape_.batch * positions * parts * local_.width;
    BRIGADE_RETURN_IF_ERROR(move(from_order, from, PieceOrder::kByRank, sent_));
    BRIGADE_RETURN_IF_ERROR(ranks_.AllToAll(sent_, received_, count, shape_.dtype, stream));
    return move(PieceOrder::kByRank, received_, to_order, to);
  });
}

absl::Status Ulysses::GatherPositions(int64_t parts, const void* mine, void* all,
                                      device::Stream& stream) {
  return Exchange(parts, PieceOrder::kByHead, mine, PieceOrder::kByPosition, all, stream);
}

absl::Status Ulysses::GatherHeads(int64_t parts, const void* all, void* mine,
                                  device::Stream& stream) {
  return Exchange(parts, PieceOrder::kByPosition, all, PieceOrder::kByHead, mine, stream);
}

absl::Status Ulysses::GatherQkv(const void* qkv, const Saved& saved, device::Stream& stream) {
  return GatherPositions(3, qkv, saved.qkv, stream);
}

absl::Status Ulysses::Attend(const Saved& saved, void* out, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(nn::Attention(local_, saved.qkv, saved.out, saved.log_sum_exp, stream));
  return GatherHeads(1, saved.out, out, stream);
}

absl::Status Ulysses::Backward(const void* dout, const Saved& saved, void* dqkv,
                               device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(GatherPositions(1, dout, dout_, stream));
  BRIGADE_RETURN_IF_ERROR(nn::AttentionBackward(local_, saved.qkv, saved.out, saved.log_sum_exp,
                                                dout_, workspace_, dqkv_, stream));
  return GatherHeads(3, dqkv_, dqkv, stream);
}

}  // namespace brigade::parallel
