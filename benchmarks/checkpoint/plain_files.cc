#include "brigade/benchmarks/checkpoint/plain_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "brigade/device/file/crc32c.h"

namespace brigade::benchmarks {
namespace {

absl::Status Failed(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("a plain loop over ", path));
}

class File {
 public:
  File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

absl::Status WritePlain(const std::string& path, const Memory& memory, int64_t chunk_bytes) {
  const File file(path, O_WRONLY | O_CREAT | O_EXCL);
  int64_t bytes = 0;
  for (const auto& part : memory) bytes += static_cast<int64_t>(part.size());
  // Where the file system cannot, the loop runs without.
  if (file.fd() >= 0) ::fallocate(file.fd(), FALLOC_FL_KEEP_SIZE, 0, bytes);
  int64_t at = 0;
  for (const auto& part : memory) {
    for (size_t done = 0; done < part.size();) {
      const size_t count = std::min(part.size() - done, static_cast<size_t>(chunk_bytes));
      const ssize_t written = ::pwrite(file.fd(), part.data() + done, count, at);
      if (written <= 0) return Failed(path);
      done += static_cast<size_t>(written);
      at += written;
    }
  }
  return ::fdatasync(file.fd()) == 0 ? absl::OkStatus() : Failed(path);
}

absl::Status ReadPlain(const std::vector<std::string>& paths, int rank, int ranks,
                       int64_t chunk_bytes, absl::Span<char> to, uint32_t* sum) {
  size_t used = 0;
  for (const std::string& path : paths) {
    const File file(path, O_RDONLY);
    const int64_t bytes = BytesOf({path});
    const int64_t end = bytes * (rank + 1) / ranks;
    for (int64_t at = bytes * rank / ranks; at < end;) {
      const auto count = static_cast<size_t>(std::min(end - at, chunk_bytes));
      char* const chunk = to.subspan(used).data();
      const ssize_t read = ::pread(file.fd(), chunk, count, at);
      if (read <= 0) return Failed(path);
      if (sum != nullptr) *sum = device::Crc32c({chunk, static_cast<size_t>(read)}, *sum);
      used += static_cast<size_t>(read);
      at += read;
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> FilesOf(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    if (entry.is_regular_file(none)) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

int64_t BytesOf(const std::vector<std::string>& paths) {
  int64_t bytes = 0;
  std::error_code none;
  for (const std::string& path : paths) {
    bytes += static_cast<int64_t>(std::filesystem::file_size(path, none));
  }
  return bytes;
}

absl::Status DropFromCache(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const File file(path, O_RDONLY);
    errno = ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
    if (errno != 0) return Failed(path);
  }
  return absl::OkStatus();
}

absl::Status RemoveAndSync(const std::string& folder, const std::vector<std::string>& names) {
  std::error_code error;
  for (const std::string& name : names) {
    std::filesystem::remove_all(absl::StrCat(folder, "/", name), error);
  }
  const File all(folder, O_RDONLY | O_DIRECTORY);
  return ::syncfs(all.fd()) == 0 ? absl::OkStatus() : Failed(folder);
}

}  // namespace brigade::benchmarks
