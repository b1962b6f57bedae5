#include "brigade/collectives/internal/frame_buffer.h"

#include <arpa/inet.h>

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace brigade::collectives::internal {

absl::StatusOr<bool> FrameBuffer::Take(uint32_t most, std::string& payload) {
  if (size() < kHeaderBytes) return false;
  uint32_t length = 0;
  std::memcpy(&length, data_.data() + taken_, kHeaderBytes);
  length = ntohl(length);
  if (length > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", length, " bytes, of at most ", most));
  }
  if (size() - kHeaderBytes < length) return false;
  payload = data_.substr(taken_ + kHeaderBytes, length);
  taken_ += kHeaderBytes + length;
  // What is moved is no more than what has been taken since the last time.
  if (taken_ >= data_.size() - taken_) {
    data_.erase(0, taken_);
    taken_ = 0;
    if (data_.empty()) data_.shrink_to_fit();
  }
  return true;
}

}  // namespace brigade::collectives::internal
