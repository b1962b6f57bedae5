#include "brigade/zero/plan/file_layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {

device::FileOptions FileOptionsOf(const ZeroOptions& options) {
  device::FileOptions file = options.offload.file;
  // The optimizer state from the file and to it, copies of it, and the weights from it.
  file.operations = options.offload.file_parameters() ? 4 : 3;
  return file;
}

FileLayout::FileLayout(const Plan& plan, const ZeroOptions& options)
    : state_of(plan.buckets().size()), weights_of(plan.buckets().size(), -1) {
  const OffloadOptions& offload = options.offload;
  if (!offload.file_state()) return;
  const int arrays = 1 + optim::Moments(options.optimizer);
  // Of whole blocks.
  const int64_t tile =
      optim::HasCodes(options.optimizer.kind) ? optim::TensorTile(options.optimizer.kind) : 1;
  const int64_t step = std::max(offload.chunk_elements / tile, int64_t{1}) * tile;
  for (int b = static_cast<int>(plan.buckets().size()); b-- > 0;) {
    const Bucket& bucket = plan.bucket(b);
    auto& [first, last] = state_of[static_cast<size_t>(b)];
    first = static_cast<int64_t>(chunks.size());
    const int64_t slice = bucket.trainable ? plan.slice(bucket) : 0;
    for (int64_t at = 0; at < slice; at += step) {
      const int64_t size = std::min(step, slice - at);
      const int64_t bytes = StateBytes(options, bucket, 0, arrays, size);
      chunks.push_back({b, /*is_state=*/true, {at, size}, bytes});
    }
    last = static_cast<int64_t>(chunks.size());
  }
  state_chunks = static_cast<int64_t>(chunks.size());
  if (!offload.file_parameters()) return;
  for (int b = static_cast<int>(plan.buckets().size()); b-- > 0;) {
    const Bucket& bucket = plan.bucket(b);
    weights_of[static_cast<size_t>(b)] = static_cast<int64_t>(chunks.size());
    chunks.push_back(
        {b, /*is_state=*/false, {0, plan.slice(bucket)}, bucket.bytes() / plan.ranks()});
  }
}

std::vector<int64_t> FileLayout::Sizes() const {
  std::vector<int64_t> sizes;
  for (const FileChunk& each : chunks) sizes.push_back(each.bytes);
  return sizes;
}

int64_t FileLayout::Bytes(bool is_state) const {
  int64_t bytes = 0;
  for (const FileChunk& each : chunks) bytes += each.is_state == is_state ? each.bytes : 0;
  return bytes;
}

int64_t FileLayout::LargestBytes(bool is_state) const {
  int64_t bytes = 0;
  for (const FileChunk& each : chunks) {
    if (each.is_state == is_state) bytes = std::max(bytes, each.bytes);
  }
  return bytes;
}

int64_t FileLayout::Buffers(bool is_state, const ZeroOptions& options) const {
  const int64_t all = is_state ? state_chunks : static_cast<int64_t>(chunks.size()) - state_chunks;
  return std::min<int64_t>(options.offload.chunk_buffers, all);
}

std::string ToString(const FileChunk& chunk) {
  if (!chunk.is_state) return absl::StrCat("weights of bucket ", chunk.bucket);
  return absl::StrCat("optimizer state of bucket ", chunk.bucket, ", elements ", chunk.range.begin,
                      " to ", chunk.range.begin + chunk.range.size);
}

}  // namespace brigade::zero::internal
