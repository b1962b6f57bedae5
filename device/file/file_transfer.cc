#include "brigade/device/file/file_transfer.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/file/aligned_memory.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/status_macros.h"

namespace brigade::device::internal {
namespace {

// Of a block that makes no progress, interrupted by signals or for want of some resource: enough
// for any burst of signals, and an end.
constexpr int kMostRepetitions = 1000;

bool IsAligned(const char* address, int64_t alignment) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(alignment) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileTransfers>> FileTransfers::Create(FileEngine& engine, int depth,
                                                                     int64_t block_bytes,
                                                                     char* staging) {
  std::unique_ptr<FileTransfers> transfers(new FileTransfers(depth, block_bytes, staging));
  transfers->free_.reserve(transfers->blocks_.size());
  for (Block& block : transfers->blocks_) transfers->free_.push_back(&block);
  BRIGADE_ASSIGN_OR_RETURN(transfers->queue_, engine.CreateQueue(depth));
  return transfers;
}

int64_t FileTransfers::Cut(const Transfer& transfer, int64_t position, char* staging,
                           Block& block) const {
  const FileAlignment& alignment = transfer.alignment;
  char* const memory = transfer.memory + position;
  const int64_t left = transfer.bytes - position;
  // Of the file's block in which the bytes begin, what is before them.
  const int64_t before = (transfer.offset + position) % alignment.offset;
  const bool direct =
      before == 0 && IsAligned(memory, alignment.memory) && left >= alignment.offset;
  const int64_t bytes = direct ? std::min(left / alignment.offset * alignment.offset, block_bytes_)
                               : std::min(left, std::min(kStagingBytes, block_bytes_) - before);

  block.memory = memory;
  block.memory_bytes = bytes;
  block.staging = direct ? nullptr : staging + before;
  block.repetitions = 0;
  block.done = 0;
  block.begin = block.offset = transfer.offset + position - before;
  block.asked = block.bytes = RoundUp(before + bytes, alignment.offset);
  block.data = direct ? memory : staging;
  block.write = transfer.write;
  block.fd = transfer.fd;
  if (!direct && transfer.write) {
    std::memcpy(staging, memory, static_cast<size_t>(bytes));
    std::memset(staging + bytes, 0, static_cast<size_t>(block.bytes - bytes));
  }
  return position + bytes;
}

bool FileTransfers::GoesOn(const FileAlignment& alignment, Block& block) {
  if (block.result == -EINTR || block.result == -EAGAIN) {
    return ++block.repetitions <= kMostRepetitions;
  }
  if (block.result <= 0 || block.result > block.bytes) return false;
  // What is left begins where the file takes it.
  const int64_t done = block.result == block.bytes
                           ? block.bytes
                           : block.result / alignment.offset * alignment.offset;
  block.done += done;
  block.data += done;
  block.offset += done;
  block.bytes -= done;
  return done > 0 && block.bytes > 0;
}

absl::Status FileTransfers::ErrorOf(const Block& block) {
  if (block.bytes == 0) return absl::OkStatus();
  const std::string block_text =
      absl::StrCat(block.asked, " bytes at byte ", block.begin, ", ", block.done, " of them done");
  if (block.result < 0) {
    const auto error = static_cast<int>(-block.result);
    absl::Status status = absl::ErrnoToStatus(error, block_text);
    // Of a disk that cannot read what it has, or has not written it.
    return error == EIO ? absl::DataLossError(status.message()) : status;
  }
  if (!block.write && block.result < block.bytes) {
    return absl::DataLossError(
        absl::StrCat(block_text, ": the file ends at byte ", block.offset + block.result));
  }
  return absl::DataLossError(
      absl::StrCat(block_text, ": the system says that it has done ", block.result));
}

absl::StatusOr<uint32_t> FileTransfers::Run(const Transfer& transfer) {
  absl::Status status;
  uint32_t sum = 0;
  int64_t position = 0;
  for (;;) {
    while (status.ok() && position < transfer.bytes && !free_.empty()) {
      Block& block = *free_.back();
      free_.pop_back();
      char* const staging = staging_ + (&block - blocks_.data()) * kStagingBytes;
      position = Cut(transfer, position, staging, block);
      queue_->Start(block);
    }
    if (free_.size() == blocks_.size()) break;
    auto& block = static_cast<Block&>(queue_->Next());
    if (GoesOn(transfer.alignment, block)) {
      queue_->Start(block);
      continue;
    }
    free_.push_back(&block);
    if (absl::Status error = ErrorOf(block); !error.ok()) {
      if (status.ok()) status = std::move(error);
      continue;
    }
    const auto bytes = static_cast<size_t>(block.memory_bytes);
    if (!transfer.write && block.staging != nullptr) {
      std::memcpy(block.memory, block.staging, bytes);
    }
    if (transfer.sums) {
      // The sum of the whole is that of its blocks, each moved to its place, in any order.
      const int64_t behind = transfer.memory + transfer.bytes - (block.memory + bytes);
      sum ^= CombineCrc32c(Crc32c({block.memory, bytes}), 0, static_cast<uint64_t>(behind));
    }
  }
  if (!status.ok()) return status;
  return sum;
}

}  // namespace brigade::device::internal
