#include "brigade/checkpoint/tensor_sums.h"

#include <cstddef>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/status_macros.h"

namespace brigade::checkpoint {

absl::StatusOr<std::vector<uint32_t>> TensorSums(const Layout& layout, const zero::Plan& plan,
                                                 const std::vector<uint32_t>& mine,
                                                 collectives::Communicator& communicator) {
  const std::string bytes_of_mine(reinterpret_cast<const char*>(mine.data()),
                                  mine.size() * sizeof(uint32_t));
  BRIGADE_ASSIGN_OR_RETURN(const auto all,
                           collectives::AllGatherBytes(bytes_of_mine, communicator));
  std::vector<uint32_t> tensors(layout.tensors().size(), 0);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::vector<Piece> pieces = layout.PiecesOf(plan, static_cast<int>(rank));
    std::vector<uint32_t> sums(pieces.size());
    if (all[rank].size() != sums.size() * sizeof(uint32_t)) {
      return absl::InternalError(absl::StrCat("checkpoint: rank ", rank, " has other pieces"));
    }
    if (!sums.empty()) std::memcpy(sums.data(), all[rank].data(), all[rank].size());
    for (size_t p = 0; p < pieces.size(); ++p) {
      uint32_t& sum = tensors[static_cast<size_t>(pieces[p].tensor)];
      sum = device::CombineCrc32c(sum, sums[p], static_cast<uint64_t>(pieces[p].bytes));
    }
  }
  return tensors;
}

}  // namespace brigade::checkpoint
