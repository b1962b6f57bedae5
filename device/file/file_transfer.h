#ifndef BRIGADE_DEVICE_FILE_FILE_TRANSFER_H_
#define BRIGADE_DEVICE_FILE_FILE_TRANSFER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/file/file_engine.h"

namespace brigade::device::internal {

// Of the memory that bytes go through which O_DIRECT does not take, for each block in flight.
inline constexpr int64_t kStagingBytes = int64_t{64} << 10;

// What the file asks for: 1 and 1 for one that goes through the page cache.
struct FileAlignment {
  // Of addresses.
  int64_t memory = 1;
  // Of offsets and lengths. At most kFileBlockBytes.
  int64_t offset = 1;
};

// Bytes between memory and a file. With an alignment, whole blocks of it are read and written, the
// last one with zeros behind the bytes; the offset of a write is then a multiple of it.
struct Transfer {
  bool write = false;
  int fd = -1;
  char* memory = nullptr;
  int64_t bytes = 0;
  int64_t offset = 0;
  FileAlignment alignment = {};
  // Whether their CRC-32C is wanted.
  bool sums = false;
};

// Carries transfers out, one at a time: cuts them into blocks and keeps several of these in flight.
//
// Results      All are looked at. What was done in part is gone on with, what a signal interrupted
//              is done again, and all else is an error, after which no further block begins and
//              those in flight are waited for: when Run returns, nothing is.
// Allocation   None after Create.
// Threads      One at a time.
class FileTransfers {
 public:
  // `staging` has depth * kStagingBytes, on an address that kFileBlockBytes divides, and outlives
  // it. Errors of CreateQueue.
  static absl::StatusOr<std::unique_ptr<FileTransfers>> Create(FileEngine& engine, int depth,
                                                               int64_t block_bytes, char* staging);

  // The CRC-32C of the bytes, or 0 if it is not asked for. The first error, which says of a block
  // "1048576 bytes at byte 4198400, 4096 of them done: No space left on device". DataLoss for EIO
  // and for a file that ends too early.
  absl::StatusOr<uint32_t> Run(const Transfer& transfer);

 private:
  // A block in flight.
  struct Block : FileRequest {
    // The bytes of the transfer that it stands for.
    char* memory = nullptr;
    int64_t memory_bytes = 0;
    // Of what was asked of the file at first.
    int64_t begin = 0;
    int64_t asked = 0;
    int64_t done = 0;
    int repetitions = 0;
    // Not null: they go through it, and begin there. What was read before them is not wanted.
    char* staging = nullptr;
  };

  FileTransfers(int depth, int64_t block_bytes, char* staging)
      : block_bytes_(block_bytes), blocks_(depth), staging_(staging) {}

  // The block at `position` of the transfer; returns the position behind it.
  int64_t Cut(const Transfer& transfer, int64_t position, char* staging, Block& block) const;
  // Looks at the result: true if the block was made to go on.
  static bool GoesOn(const FileAlignment& alignment, Block& block);
  static absl::Status ErrorOf(const Block& block);

  const int64_t block_bytes_;
  std::vector<Block> blocks_;
  std::vector<Block*> free_;
  char* const staging_;
  std::unique_ptr<FileQueue> queue_;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_FILE_FILE_TRANSFER_H_
