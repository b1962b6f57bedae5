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
namespace {

struct Entry {
  uint32_t tensor;
  uint32_t sum;
};

}  // namespace

uint32_t TensorSums::Add(int tensor, int64_t offset, absl::string_view block) {
  const auto t = static_cast<size_t>(tensor);
  const uint32_t sum = device::Crc32c(block);
  const int64_t end = offset + static_cast<int64_t>(block.size());
  sums_[t] ^=
      device::CombineCrc32c(sum, 0, static_cast<uint64_t>(layout_.tensors()[t].bytes - end));
  return sum;
}

absl::StatusOr<std::vector<uint32_t>> TensorSums::Gather(
    collectives::Communicator& communicator) const {
  std::string mine;
  for (size_t t = 0; t < sums_.size(); ++t) {
    // A rank has something of few tensors.
    if (sums_[t] == 0) continue;
    const Entry entry = {static_cast<uint32_t>(t), sums_[t]};
    mine.append(reinterpret_cast<const char*>(&entry), sizeof(entry));
  }
  BRIGADE_ASSIGN_OR_RETURN(const auto all, collectives::AllGatherBytes(mine, communicator));
  std::vector<uint32_t> tensors(sums_.size(), 0);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (size_t at = 0; at + sizeof(Entry) <= all[rank].size(); at += sizeof(Entry)) {
      Entry entry;
      std::memcpy(&entry, all[rank].data() + at, sizeof(entry));
      if (entry.tensor >= tensors.size()) {
        return absl::InternalError(absl::StrCat("checkpoint: rank ", rank, " has other tensors"));
      }
      tensors[entry.tensor] ^= entry.sum;
    }
  }
  return tensors;
}

}  // namespace brigade::checkpoint
