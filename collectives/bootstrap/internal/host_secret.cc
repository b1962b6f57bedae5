#include "brigade/collectives/bootstrap/internal/host_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace brigade::collectives::internal {
namespace {

std::string Folder() { return absl::StrCat("/tmp/brigade-", geteuid()); }

std::string PathOf(int port) {
  struct stat network = {};
  // Zero where the system does not tell.
  stat("/proc/self/ns/net", &network);
  return absl::StrCat(Folder(), "/", network.st_ino, ".", port, ".secret");
}

absl::Status Wrong(const std::string& path, const char* what) {
  return absl::FailedPreconditionError(absl::StrCat("no secret for the ranks of this host: '", path,
                                                    "': ", what, "; set BRIGADE_JOB_SECRET"));
}

// The folder is ours alone, whoever made it.
absl::Status CheckFolder() {
  const std::string folder = Folder();
  struct stat status = {};
  if (lstat(folder.c_str(), &status) != 0) return Wrong(folder, std::strerror(errno));
  if (!S_ISDIR(status.st_mode)) return Wrong(folder, "not a folder");
  if (status.st_uid != geteuid()) return Wrong(folder, "another user's folder");
  if ((status.st_mode & 077) != 0) return Wrong(folder, "open to others: its mode must be 0700");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HostSecret> HostSecret::Publish(int port) {
  const std::string path = PathOf(port), made = absl::StrCat(path, ".", getpid());
  if (mkdir(Folder().c_str(), 0700) != 0 && errno != EEXIST) {
    return Wrong(Folder(), std::strerror(errno));
  }
  const absl::Status folder = CheckFolder();
  if (!folder.ok()) return folder;
  const JobSecret secret = JobSecret::Random();
  const std::string hex = secret.ToHex();
  unlink(made.c_str());  // of an earlier process of this number
  const int fd = open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Wrong(made, std::strerror(errno));
  const ssize_t written = write(fd, hex.data(), hex.size());
  const int error = errno;
  close(fd);
  // At once and as a whole.
  if (written != static_cast<ssize_t>(hex.size())) {
    unlink(made.c_str());
    return Wrong(made, written < 0 ? std::strerror(error) : "it does not fit");
  }
  if (rename(made.c_str(), path.c_str()) != 0) {
    const int why = errno;
    unlink(made.c_str());
    return Wrong(path, std::strerror(why));
  }
  return HostSecret(path, secret);
}

absl::StatusOr<JobSecret> HostSecret::Read(int port) {
  const absl::StatusOr<JobSecret> secret = JobSecret::FromFile(PathOf(port));
  // No link leads to it: JobSecret has looked at the file, not at the folder.
  if (secret.ok()) {
    const absl::Status folder = CheckFolder();
    if (!folder.ok()) return folder;
  }
  return secret;
}

HostSecret::HostSecret(HostSecret&& other) noexcept
    : path_(std::exchange(other.path_, "")), secret_(other.secret_) {}

HostSecret::~HostSecret() {
  if (path_.empty()) return;
  // It may be the next job's already.
  const absl::StatusOr<JobSecret> there = JobSecret::FromFile(path_);
  if (there.ok() && *there == secret_) unlink(path_.c_str());
}

}  // namespace brigade::collectives::internal
