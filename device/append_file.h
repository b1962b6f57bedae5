#ifndef BRIGADE_DEVICE_APPEND_FILE_H_
#define BRIGADE_DEVICE_APPEND_FILE_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace brigade::device {

// A file that grows by whole pieces: a piece that did not fit on the disk leaves nothing behind,
// and the next one comes in its place.
//
// Others       Where another process has written to the file, or cut it off, one piece is refused
//              and the next one comes behind what is there; where it was removed, all are.
// Errors       What the system says, or what others did, naming the path.
// Threads      One at a time.
class AppendFile {
 public:
  // What is there stays; the file is made if it is not there.
  static absl::StatusOr<AppendFile> Open(const std::string& path);
  // AlreadyExists if it is there.
  static absl::StatusOr<AppendFile> Create(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }

  // Hands all of it to the system, or nothing.
  absl::Status Append(absl::string_view bytes);
  // Waits until the disk has all of it. Some file systems, as NFS, say only then that they are
  // full.
  absl::Status Sync();
  // Comes last. Waits for no disk of this machine; file systems of others, as NFS, hand over now
  // what they still have, and may say that there is no room for it. Again: nothing. Whoever goes
  // without it hears nothing of that.
  absl::Status Close();

  // What becomes of a line. One that is damaged stays where a line that is kept comes behind it.
  enum class Fate : uint8_t { kKept, kDamaged, kCutOff };
  // Cuts off what comes behind the last line that is kept before the first one that is not, as
  // `fate` says of each, given with its end. Lines without an end, or longer than any of ours, are
  // damaged.
  absl::Status KeepLines(absl::FunctionRef<Fate(absl::string_view line)> fate);

 private:
  AppendFile(const std::string& path, std::FILE* file) : path_(path), file_(file, &std::fclose) {}

  // Takes over what was opened.
  static absl::StatusOr<AppendFile> Own(const std::string& path, std::FILE* opened);

  absl::Status Failed(const char* what) const;
  // Whether the file is as this object has left it.
  absl::Status CheckOthers();
  // Takes away what did not become a piece.
  absl::Status CutHalfPiece();

  std::string path_;
  // Read by its buffer, written past it.
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  int64_t size_ = 0;
  // Of the file as this object has left it: more than `size_` if half a piece is still there.
  int64_t end_ = 0;
  // Some file systems do not count names.
  bool has_name_ = false;
};

// Makes a folder and those above it. Errors as above; FailedPrecondition of what is no folder.
absl::Status MakeFolder(const std::string& path);

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_APPEND_FILE_H_
