#ifndef BRIGADE_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define BRIGADE_CHECKPOINT_CHECKPOINT_FOLDER_H_

// How a checkpoint becomes a folder ROOT/step-00000042 as a whole, whatever fails meanwhile: files
// are written and synced in ROOT/.step-00000042.part-TOKEN; the manifest, which makes it a
// checkpoint, is written last; then the folder gets its name. Older ones go only after that.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/file/system_calls.h"

namespace brigade::checkpoint {

inline constexpr absl::string_view kManifestName = "manifest.json";

// Where the files of a checkpoint are written before it is one: NewCheckpoint::path.
std::string PartPath(const std::string& root, int64_t step, const std::string& token);

// Where the checkpoint of a step is.
std::string CheckpointPath(const std::string& root, int64_t step);

// Makes the root if it is not there, in a folder that is, and tries whether checkpoints can be made
// in it, so that a wrong one is found before there is something to save. `token`: as below; ranks
// of one training may give the same.
absl::Status PrepareRoot(device::SystemCalls& system, const std::string& root,
                         const std::string& token);

// A checkpoint that is being written. Processes may begin the same one, with one token, and write
// files into the folder; then all but one Leave it, and that one commits it.
class NewCheckpoint {
 public:
  // Makes the root if it is not there, in a folder that is, and removes what saves that were cut
  // short have left, as far as it can: no other save of this root may be under way. Then makes the
  // folder, or finds it made. `bytes`: of the files that are known of; ResourceExhausted if the
  // disk has no room for them. AlreadyExists if something has the name of this checkpoint. `token`:
  // of 16 hexadecimal digits, which no other save of this root has.
  static absl::StatusOr<NewCheckpoint> Begin(device::SystemCalls& system, const std::string& root,
                                             int64_t step, int64_t bytes, const std::string& token);
  NewCheckpoint(NewCheckpoint&& other) noexcept;
  NewCheckpoint& operator=(NewCheckpoint&&) = delete;
  // Removes what was not committed, or was withdrawn, as far as it can.
  ~NewCheckpoint();

  // Where files are written, as WritableFile.
  const std::string& path() const { return path_; }

  // ResourceExhausted if less was free at Begin: for all files, once they are known.
  absl::Status CheckRoom(int64_t bytes) const;
  // Another process commits it, or removes it: this object does nothing more.
  void Leave() { removes_ = false; }

  // All files are there, and synced: makes it a checkpoint. When it returns OK, the checkpoint
  // outlives a crash. After an error there is none, or, if the last sync has failed, there is one,
  // whole, of which a crash may leave nothing.
  absl::Status Commit(absl::string_view manifest);
  // After Commit, whatever it returned: there is no checkpoint, and a crash leaves none, or, if it
  // comes before this returns OK, perhaps a whole one. Its name may be saved to again.
  absl::Status Withdraw();

 private:
  NewCheckpoint(device::SystemCalls& system, const std::string& root, int64_t step,
                const std::string& path, int64_t free_bytes)
      : system_(&system),
        root_(root),
        named_(CheckpointPath(root, step)),
        path_(path),
        free_bytes_(free_bytes) {}

  device::SystemCalls* system_;
  std::string root_;
  // Where it is once it is a checkpoint, and before.
  std::string named_, path_;
  // On the disk, at Begin.
  int64_t free_bytes_;
  bool has_name_ = false;
  // At the end, what is at path_.
  bool removes_ = true;
};

// The steps of the checkpoints in a root, ascending; none if there is no such folder. A folder
// without a manifest, which must be a regular file, is none; a manifest that cannot be read is an
// error.
absl::StatusOr<std::vector<int64_t>> ListCheckpoints(device::SystemCalls& system,
                                                     const std::string& root);

// Whether a folder is a checkpoint, by any name: it has a manifest.
absl::StatusOr<bool> IsCheckpoint(device::SystemCalls& system, const std::string& path);

// Gives the checkpoint of a step, a damaged one or one that not all ranks have, a name that none of
// these functions looks at: "damaged-step-00000042", with a number behind it if there is one.
// NotFound if there is none of it.
absl::Status SetAside(device::SystemCalls& system, const std::string& root, int64_t step);

// Keeps `keep` checkpoints, at least 1: that of the step `saved`, and those of the highest other
// steps. Removes the others, and what saves that were cut short have left. `saved` is the one just
// saved: it stays also where a run that was given up has left higher steps. NotFound, and nothing
// is removed, if there is none of it. No save of this root may be under way.
absl::Status RemoveOldCheckpoints(device::SystemCalls& system, const std::string& root,
                                  int64_t saved, int keep);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_CHECKPOINT_FOLDER_H_
