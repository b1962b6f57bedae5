#ifndef BRIGADE_DEVICE_FILES_H_
#define BRIGADE_DEVICE_FILES_H_

// Files that a job reads and writes: regular ones. What else a path may lead to (a folder, a
// device, a pipe) may never end, or never begin, and is refused at once, by name. Readers follow
// links, writers do not.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace brigade::device {

// A quarter of the machine's memory, in bytes: what is read whole is no larger.
int64_t MostFileBytes();

// Reads a file from its begin to its end.
class InputFile {
 public:
  // NotFound, or what the system says; InvalidArgument for what is no regular file,
  // ResourceExhausted for one of more than `most_bytes`, before any memory is taken. All name the
  // path.
  static absl::StatusOr<InputFile> Open(const std::string& path,
                                        int64_t most_bytes = MostFileBytes());

  // At the time of Open, in bytes.
  int64_t size() const { return size_; }
  // The next `bytes` bytes. DataLoss if there are fewer, or what the system says, naming the path.
  absl::Status Read(void* to, int64_t bytes);

 private:
  InputFile(const std::string& path, std::FILE* file, int64_t size)
      : path_(path), file_(file, &std::fclose), size_(size) {}

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  int64_t size_;
};

// A whole file. Errors of InputFile; DataLoss if it becomes shorter meanwhile.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t most_bytes = MostFileBytes());

// Whether both paths lead to one file, there already or not. False where one is empty.
bool SameFile(const std::string& one, const std::string& other);

// Opens a file to write it from its begin; it is made if it is not there. InvalidArgument for a
// link or what else is no regular file, or what the system says, naming the path.
absl::StatusOr<std::FILE*> OpenForWriting(const std::string& path);

// Opens a file to read it and to go on with it; it is made if it is not there. Errors as of
// OpenForWriting.
absl::StatusOr<std::FILE*> OpenForUpdate(const std::string& path);

// A file that takes the place of another one as a whole, also if the machine fails, or not at all.
class FileReplacement {
 public:
  // Begins to write beside it, to a new path.PID.part, with the permissions of the file that is
  // there. Errors of OpenForWriting, for both.
  static absl::StatusOr<FileReplacement> Begin(const std::string& path);
  // Takes away what was not committed.
  ~FileReplacement();
  FileReplacement(FileReplacement&&) = default;

  // An error is Commit's.
  void Write(absl::string_view bytes);
  // Writes all to the disk and renames it. Unavailable with what the system says, naming the path.
  absl::Status Commit();

 private:
  FileReplacement(std::string path, std::FILE* file)
      : path_(std::move(path)), file_(file, &std::fclose) {}

  static std::string NameBeside(const std::string& path);
  std::string beside() const { return NameBeside(path_); }

  std::string path_;
  // The first one of Write.
  int error_ = 0;
  // Null: committed.
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_FILES_H_
