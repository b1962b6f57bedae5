#include "brigade/collectives/bootstrap/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/collectives/bootstrap/fields.h"

namespace brigade::collectives {
namespace {

constexpr absl::Duration kLookInterval = absl::Milliseconds(5);
constexpr char kFailureKey[] = "failure";

absl::Status Failed(const std::string& path) {
  return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
}

std::optional<std::string> Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A reader sees the whole value or none. AlreadyExists if the file is there.
absl::Status WriteOnce(const std::string& path, const std::string& value) {
  std::string draft = absl::StrCat(path, ".XXXXXX");
  const int fd = mkstemp(draft.data());
  if (fd < 0) return Failed(draft);
  const ssize_t written = write(fd, value.data(), value.size());
  absl::Status status;
  if (written != static_cast<ssize_t>(value.size()) || fsync(fd) != 0) status = Failed(draft);
  close(fd);
  if (status.ok() && link(draft.c_str(), path.c_str()) != 0) {
    status = errno == EEXIST ? absl::AlreadyExistsError(path) : Failed(path);
  }
  unlink(draft.c_str());
  return status;
}

}  // namespace

absl::StatusOr<std::shared_ptr<FileStore>> FileStore::Create(const FileStoreOptions& options) {
  if (options.size > kMostRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group of ", options.size, " ranks; there are at most ", kMostRanks));
  }
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("no rank ", options.rank, " in a group of ", options.size));
  }
  if (options.folder.empty()) return absl::InvalidArgumentError("the store's folder has no name");
  if (mkdir(options.folder.c_str(), 0700) != 0 && errno != EEXIST) return Failed(options.folder);
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
    const absl::Status error = absl::AlreadyExistsError(absl::StrCat(
        "two processes have rank ", options_.rank, " in ", options_.folder,
        " (or its files are of an earlier run): ", Read(PathOf(key)).value_or("?"), " and ", self));
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
        "world sizes differ in ", options_.folder, ": rank ", rank, " was started with ", theirs,
        " ranks, rank ", options_.rank, " with ", size)));
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
  std::string path = absl::StrCat(options_.folder, "/");
  for (const char c : key) {
    if (absl::ascii_isalnum(c) || c == '-' || c == '_') {
      path += c;
    } else {
      absl::StrAppendFormat(&path, "%%%02x", static_cast<unsigned char>(c));
    }
  }
  return path;
}

absl::Status FileStore::Set(const std::string& key, const std::string& value) {
  const std::string path = PathOf(key);
  const absl::Status written = WriteOnce(path, value);
  if (!absl::IsAlreadyExists(written)) return written;
  if (Read(path) == value) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("key '", key, "' has another value in ", options_.folder));
}

absl::StatusOr<std::string> FileStore::Get(const std::string& key, absl::Duration timeout) {
  const std::string path = PathOf(key);
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    const std::optional<std::string> failure = Read(PathOf(kFailureKey));
    if (failure.has_value()) {
      const size_t space = failure->find(' ');
      int code = 0;
      if (space == std::string::npos || !absl::SimpleAtoi(failure->substr(0, space), &code)) {
        code = static_cast<int>(absl::StatusCode::kUnavailable);
      }
      return ErrorOfCode(code, failure->substr(space + 1));
    }
    std::optional<std::string> value = Read(path);
    if (value.has_value()) return *std::move(value);
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("nobody has set key '", key, "' in ", options_.folder));
    }
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(kLookInterval));
  }
}

}  // namespace brigade::collectives
