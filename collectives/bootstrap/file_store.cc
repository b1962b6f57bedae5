#include "brigade/collectives/bootstrap/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/device/files.h"
#include "brigade/device/printable.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives {
namespace {

using ::brigade::device::Printable;
using ::brigade::device::SteadyTime;

constexpr absl::Duration kLookInterval = absl::Milliseconds(5);
constexpr char kFailureKey[] = "failure";

// Of a value, as of a message between ranks: they are addresses and what ranks were started with.
constexpr int64_t kMostValueBytes = 4 << 20;

absl::Status Failed(const char* what, const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

// Nothing if no such file is there.
absl::StatusOr<std::optional<std::string>> Read(const std::string& path) {
  absl::StatusOr<std::string> value = device::ReadFile(path, kMostValueBytes);
  if (absl::IsNotFound(value.status())) return std::nullopt;
  if (!value.ok()) return value.status();
  return *std::move(value);
}

absl::Status MakeFolder(const std::string& folder) {
  struct stat status = {};
  if ((mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) || stat(folder.c_str(), &status) != 0) {
    return Failed("make", folder);
  }
  if (!S_ISDIR(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(folder, " is no folder"));
  }
  if ((status.st_mode & S_IWOTH) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " is open to everybody: who writes there can speak for a rank"));
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return Failed("write", path);
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(fd) == 0 ? absl::OkStatus() : Failed("write", path);
}

// A reader sees the whole value or none. AlreadyExists if the file is there.
absl::Status WriteOnce(const std::string& path, const std::string& value) {
  std::string draft = absl::StrCat(path, ".XXXXXX");
  const int fd = mkstemp(draft.data());
  if (fd < 0) return Failed("write", draft);
  absl::Status status = WriteAll(fd, value, draft);
  close(fd);
  if (status.ok() && link(draft.c_str(), path.c_str()) != 0) {
    status = errno == EEXIST ? absl::AlreadyExistsError(path) : Failed("write", path);
  }
  unlink(draft.c_str());
  return status;
}

}  // namespace

absl::StatusOr<std::shared_ptr<FileStore>> FileStore::Create(const FileStoreOptions& options) {
  absl::Status status = CheckRank(options.rank, options.size);
  if (!status.ok()) return status;
  if (options.folder.empty()) return absl::InvalidArgumentError("the store's folder has no name");
  status = MakeFolder(options.folder);
  if (!status.ok()) return status;
  std::shared_ptr<FileStore> store(new FileStore(options));
  const absl::Status joined = store->Join();
  if (!joined.ok()) return joined;
  return store;
}

absl::Status FileStore::Join() {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  const std::string size = absl::StrCat(options_.size);
  const std::string key = absl::StrCat("rank/", options_.rank);
  const std::string values_key = absl::StrCat("values/", options_.rank);
  const std::string self = absl::StrCat(size, " process ", getpid(), " of ", host);
  // Before the rank's own file, which says that all is there.
  absl::Status written = WriteOnce(PathOf(values_key), PackValues(options_.values));
  if (written.ok()) written = WriteOnce(PathOf(key), self);
  if (absl::IsAlreadyExists(written)) {
    const auto other = Read(PathOf(key));
    if (!other.ok()) return other.status();
    const absl::Status error = absl::AlreadyExistsError(absl::StrCat(
        "two processes have rank ", options_.rank, " in ", options_.folder,
        " (or its files are of an earlier run): ", Printable(other->value_or("?")), " and ", self));
    // A whole group does not suffer from one who comes too late.
    const auto all =
        GetOfAllRanks(*this, "rank/", options_.size, absl::ZeroDuration(), options_.folder);
    return all.ok() ? error : FailAll(error);
  }
  if (!written.ok()) return written;
  const auto all = GetOfAllRanks(*this, "rank/", options_.size, options_.timeout, options_.folder);
  if (!all.ok()) return all.status();
  for (int rank = 0; rank < options_.size; ++rank) {
    const std::string theirs = (*all)[rank].substr(0, (*all)[rank].find(' '));
    if (theirs == size) continue;
    return FailAll(absl::FailedPreconditionError(absl::StrCat(
        "world sizes differ in ", options_.folder, ": rank ", rank, " was started with ",
        Printable(theirs), " ranks, rank ", options_.rank, " with ", size)));
  }
  const absl::StatusOr<std::string> packed = Get("values/0", absl::ZeroDuration());
  if (!packed.ok()) return packed.status();
  const absl::StatusOr<JobValues> of_rank_0 = UnpackValues(*packed);
  if (!of_rank_0.ok()) return of_rank_0.status();
  const std::string differences = Differences(options_.values, *of_rank_0);
  if (!differences.empty()) {
    return FailAll(absl::FailedPreconditionError(
        absl::StrCat("rank ", options_.rank, " was started otherwise than rank 0 in ",
                     options_.folder, ": ", Printable(differences))));
  }
  return absl::OkStatus();
}

absl::Status FileStore::FailAll(const absl::Status& reason) {
  WriteOnce(PathOf(kFailureKey),
            absl::StrCat(static_cast<int>(reason.code()), " ", std::string(reason.message())))
      .IgnoreError();  // the first one counts
  return reason;
}

std::string FileStore::PathOf(const std::string& key) const {
  // Names of files have at most 255 bytes, and drafts of them 7 more.
  constexpr size_t kMost = 200;
  std::string name;
  for (const char c : key) {
    if (absl::ascii_isalnum(c) || c == '-' || c == '_') {
      name += c;
    } else {
      absl::StrAppendFormat(&name, "%%%02x", static_cast<unsigned char>(c));
    }
  }
  // A name that is not cut has no "%" before a letter above f.
  if (name.size() > kMost) name = absl::StrCat(name.substr(0, kMost), "%z", DigestOf(key));
  return absl::StrCat(options_.folder, "/", name);
}

absl::Status FileStore::Set(const std::string& key, const std::string& value, absl::Duration) {
  const std::string path = PathOf(key);
  const absl::Status written = WriteOnce(path, value);
  if (!absl::IsAlreadyExists(written)) return written;
  const auto there = Read(path);
  if (!there.ok()) return there.status();
  if (*there == value) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("key '", key, "' has another value in ", options_.folder));
}

absl::StatusOr<std::string> FileStore::Get(const std::string& key, absl::Duration timeout) {
  const std::string path = PathOf(key);
  const SteadyTime deadline = SteadyTime::Now() + timeout;
  while (true) {
    const auto failed = Read(PathOf(kFailureKey));
    if (!failed.ok()) return failed.status();
    if (failed->has_value()) {
      const std::string& failure = **failed;
      const size_t space = failure.find(' ');
      int code = 0;
      if (space == std::string::npos || !absl::SimpleAtoi(failure.substr(0, space), &code)) {
        code = static_cast<int>(absl::StatusCode::kUnavailable);
      }
      return ErrorOfCode(code, failure.substr(space + 1));
    }
    auto value = Read(path);
    if (!value.ok()) return value.status();
    if (value->has_value()) return **std::move(value);
    if (SteadyTime::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("nobody has set key '", key, "' in ", options_.folder));
    }
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(kLookInterval));
  }
}

absl::Status FileStore::Remove(const std::string& key, absl::Duration) {
  const std::string path = PathOf(key);
  return unlink(path.c_str()) == 0 || errno == ENOENT ? absl::OkStatus() : Failed("remove", path);
}

}  // namespace brigade::collectives
