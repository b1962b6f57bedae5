#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_FILE_STORE_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_FILE_STORE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "brigade/collectives/bootstrap/job.h"
#include "brigade/collectives/bootstrap/store.h"

namespace brigade::collectives {

struct FileStoreOptions {
  int rank = 0;
  int size = 1;
  // Seen by all ranks; empty, or not there yet. Who can write there can speak for a rank: one that
  // everybody can write to is FailedPrecondition.
  std::string folder;
  // For all ranks to join.
  absl::Duration timeout = absl::Seconds(30);
  // For what the ranks say to each other beside the store, as in Store::secret.
  JobSecret secret = JobSecret::Public();
  // A rank whose values are not those of rank 0 is an error, on all ranks that still wait.
  JobValues values = {};
};

// A store in a folder that all ranks share: a file is a key. For hosts that share files, but whose
// rank 0 cannot be reached at a known port. The folder stays; each run takes a new one.
class FileStore : public Store {
 public:
  // Returns when all ranks have joined.
  //
  // Errors     Name the folder. DeadlineExceeded naming the ranks that did not join; AlreadyExists
  //            for two ranks with the same number, also if one is of an earlier run.
  static absl::StatusOr<std::shared_ptr<FileStore>> Create(const FileStoreOptions& options);

  absl::Status Set(const std::string& key, const std::string& value, absl::Duration) override;
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override;
  absl::Status Remove(const std::string& key, absl::Duration) override;

  // The folder outlives every rank.
  absl::Status KeepSurvivors(absl::Span<const int>, absl::Duration) override {
    return absl::OkStatus();
  }

  std::string local_host() const override { return ""; }
  JobSecret secret() const override { return options_.secret; }

 private:
  explicit FileStore(const FileStoreOptions& options) : options_(options) {}

  absl::Status Join();
  absl::Status FailAll(const absl::Status& reason);
  std::string PathOf(const std::string& key) const;

  const FileStoreOptions options_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_FILE_STORE_H_
