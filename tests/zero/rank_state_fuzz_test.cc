// A file of a rank's state. An input is read twice: as it is, and with the checksum that makes it
// whole, without which nothing behind the checksum would be reached.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/device/files.h"
#include "brigade/tests/fuzzing/checks.h"
#include "brigade/zero/internal/fnv1a.h"
#include "brigade/zero/rank_state.h"

namespace brigade::zero {
namespace {

// A file in memory that is read and written by its path.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("state", MFD_CLOEXEC)) { FUZZ_CHECK(fd_ >= 0); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(fd_); }

  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }
  void Set(const std::string& bytes) {
    FUZZ_CHECK(ftruncate(fd_, 0) == 0);
    FUZZ_CHECK(pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  const int fd_;
};

// What is written of a state that was read is what was read.
void Read(const std::string& bytes) {
  static auto& file = *new MemoryFile();
  static const auto& written = *new std::string(absl::StrCat("/dev/shm/brigade_fuzz.", getpid()));
  file.Set(bytes);
  const absl::StatusOr<RankState> state = ReadState(file.path());
  if (!state.ok()) {
    testing::CheckError(state.status());
    return;
  }
  FUZZ_CHECK(WriteState(*state, written).ok());
  const absl::StatusOr<std::string> again = device::ReadFile(written);
  unlink(written.c_str());
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(*again == bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Read(bytes);
  const uint64_t checksum = internal::Fnv1a(bytes);
  Read(bytes + std::string(reinterpret_cast<const char*>(&checksum), sizeof(checksum)));
  return 0;
}

}  // namespace brigade::zero
