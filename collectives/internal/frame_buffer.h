#ifndef BRIGADE_COLLECTIVES_INTERNAL_FRAME_BUFFER_H_
#define BRIGADE_COLLECTIVES_INTERNAL_FRAME_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/requirements.h"

namespace brigade::collectives::internal {

// What has come over a connection and is not yet taken: frames, each a length of 4 bytes in network
// order and as many bytes. Work is linear in what comes, however small the frames are.
class FrameBuffer {
 public:
  static constexpr size_t kHeaderBytes = sizeof(uint32_t);

  void Append(absl::string_view data) { data_.append(data.data(), data.size()); }

  // Takes the first whole frame off; false if there is none. InvalidArgument for a length of more
  // than `most` bytes.
  absl::StatusOr<bool> Take(uint32_t most, std::string& payload);

  // Bytes that are not taken.
  size_t size() const { return data_.size() - taken_; }

 private:
  std::string data_;
  // At its front.
  size_t taken_ = 0;
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_INTERNAL_FRAME_BUFFER_H_
