#ifndef BRIGADE_DEVICE_FILE_FILE_OPTIONS_H_
#define BRIGADE_DEVICE_FILE_FILE_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/device/requirements.h"

namespace brigade::device {

// How transfers between memory and a file are kept in flight.
enum class FileEngineKind : uint8_t {
  // io_uring if the kernel has it and permits it, else threads; FileStore::description says which,
  // and why.
  kAuto,
  // Linux 5.6 or later. Containers often forbid it.
  kIoUring,
  // Threads that call pread and pwrite.
  kThreads,
};

// "auto", "io_uring", "threads".
absl::string_view ToString(FileEngineKind kind);

// After which crash the last commit of a store is whole, so that FileStore::Open finds it.
enum class CrashSafety : uint8_t {
  // After none. The versions are in memory, and the file has no name: it is gone with the process,
  // however that ends, and nobody else can remove or cut it.
  kNone,
  // The process ends at any moment, by kill -9 too, and the machine runs on; Open refuses what is
  // from before the machine's last start. A commit costs a write of the table: 8 bytes for each
  // chunk, in whole blocks of 4096.
  kProcess,
  // The power fails as well, with a disk that keeps what it has synced. A commit costs two syncs of
  // the file (fdatasync) more.
  kMachine,
};

// "none", "process", "machine".
absl::string_view ToString(CrashSafety safety);

struct FileOptions {
  // Where the file lies. It must be there; a local disk, because the store trusts its speed.
  std::string directory = {};

  FileEngineKind engine = FileEngineKind::kAuto;

  // Past the page cache (O_DIRECT), if the file system takes that; else through it, and
  // FileStore::description says so.
  bool direct = true;

  // A transfer is cut into blocks of so many bytes, a multiple of 4096, of which so many are in
  // flight. DeepSpeed's aio.block_size and aio.queue_depth, which are 1 MiB and 8 there. 4 MiB and
  // 4: best of 1, 2, 4 MiB and 4, 8, 16, with the fewest threads, docs/decisions/0110-file-tier.md.
  int64_t block_bytes = int64_t{4} << 20;
  int queue_depth = 4;

  // Reads and writes that run at the same time, each on a stream of its own; one more waits for the
  // end of another. Each has its ring, or its queue_depth threads.
  int operations = 2;

  // A CRC-32C of each chunk, made when it is written and compared when it is read.
  bool checksums = false;

  CrashSafety crash_safety = CrashSafety::kNone;

  // InvalidArgument naming the option and its value.
  absl::Status Validate() const;

  bool operator==(const FileOptions&) const = default;
};

// What the file of a store with chunks of these sizes takes on the disk: two slots for each chunk
// and two copies of the table, each in whole blocks of 4096 bytes.
int64_t FileStoreBytes(absl::Span<const int64_t> chunk_bytes);

// What such a store takes of the host's memory: for each block in flight 64 KiB, through which go
// the bytes that O_DIRECT does not take, with a CrashSafety the table, and a block of 4096 bytes,
// so that they can begin at any address. Constant after Create.
int64_t FileStoreMemoryBytes(const FileOptions& options, absl::Span<const int64_t> chunk_bytes);

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_FILE_FILE_OPTIONS_H_
