#ifndef BRIGADE_CHECKPOINT_WEIGHT_FILES_H_
#define BRIGADE_CHECKPOINT_WEIGHT_FILES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/checkpoint/checkpoint_reader.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::checkpoint {

// Weights that any tool has written: a safetensors file; or several, with an index beside them
// (weight_index.h), as Hugging Face's tools and this package write them; or the weights of a
// checkpoint, which any stage and grid has saved, also where it lies in pieces.
//
// Errors       NotFound if there are none; InvalidArgument for what the format does not allow
//              (safetensors.h, weight_index.h), and for a link, which may lead anywhere; those of
//              CheckpointReader; what the system says. All name the path.
// Memory       The headers. Files stay open.
class WeightFiles {
 public:
  struct Tensor {
    std::string name = {};
    // As the format has it: "F32".
    std::string type = {};
    // Row-major; {} is a scalar.
    std::vector<uint64_t> shape = {};
    // Of files().
    int file = 0;
    // Bytes in the file.
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  struct File {
    std::string path = {};
    int64_t bytes = 0;
    std::map<std::string, std::string> metadata = {};
  };

  // `path`: a safetensors file; an index, whose name ends with ".json"; a checkpoint; a folder with
  // model.safetensors or model.safetensors.index.json, not both; or, with neither, a folder of
  // checkpoints, of which it is the newest.
  static absl::StatusOr<WeightFiles> Open(
      const std::string& path, device::SystemCalls& system = device::SystemCalls::Real());

  const std::vector<File>& files() const { return files_; }
  // File by file, in the order of their data; each has a name of its own.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Null if there is none.
  const Tensor* Find(absl::string_view name) const;

  // Bytes [offset, offset + bytes) of a tensor, little-endian. From any thread.
  absl::Status Read(const Tensor& tensor, int64_t offset, int64_t bytes, void* to) const;

 private:
  // Of a checkpoint, whose reader takes one call at a time.
  struct Checkpoint {
    explicit Checkpoint(CheckpointReader opened) : reader(std::move(opened)) {}
    device::Mutex mutex;
    CheckpointReader reader ABSL_GUARDED_BY(mutex);
    // Of files(), the numbers in the manifest.
    std::vector<int> numbers;
  };

  WeightFiles() = default;

  // Opens one more file; its header.
  absl::StatusOr<SafetensorsHeader> OpenFile(device::SystemCalls& system, const std::string& path);
  absl::Status OpenFilesOf(device::SystemCalls& system, const std::string& index_path);
  absl::Status OpenCheckpoint(device::SystemCalls& system, const std::string& folder);
  void AddTensors(int file, const SafetensorsHeader& header);

  std::vector<File> files_;
  // One of the two.
  std::vector<RandomAccessFile> open_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_WEIGHT_FILES_H_
