#ifndef BRIGADE_ZERO_PLAN_FILE_LAYOUT_H_
#define BRIGADE_ZERO_PLAN_FILE_LAYOUT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "brigade/device/file/file_options.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// Of a bucket's slice: the optimizer state of some elements, array by array (StateArrayOf) with the
// master first, or all of its weights.
struct FileChunk {
  int bucket = 0;
  bool is_state = true;
  ElementRange range = {};
  int64_t bytes = 0;
};

// offload.file, with the operations that are on their way at a time.
device::FileOptions FileOptionsOf(const ZeroOptions& options);

// What is where in a rank's file, the same on every rank: the chunks of the optimizer state as the
// update takes them, the last bucket first; then, with file_parameters, each bucket's weights.
struct FileLayout {
  std::vector<FileChunk> chunks;
  int64_t state_chunks = 0;
  // By bucket: its chunks of the optimizer state, [first, second), and the chunk of its weights, or
  // -1.
  std::vector<std::pair<int64_t, int64_t>> state_of;
  std::vector<int64_t> weights_of;

  // Empty where nothing is in a file.
  FileLayout(const Plan& plan, const ZeroOptions& options);

  const FileChunk& chunk(int64_t index) const { return chunks[static_cast<size_t>(index)]; }
  std::vector<int64_t> Sizes() const;
  // Of all chunks of a kind, and of the largest.
  int64_t Bytes(bool is_state) const;
  int64_t LargestBytes(bool is_state) const;
  // How many of a kind are in the host's memory at a time, on their way in one direction.
  int64_t Buffers(bool is_state, const ZeroOptions& options) const;
};

// "optimizer state of bucket 3, elements 0 to 4096", "weights of bucket 3".
std::string ToString(const FileChunk& chunk);

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_PLAN_FILE_LAYOUT_H_
