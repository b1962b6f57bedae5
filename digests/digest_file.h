#ifndef BRIGADE_DIGESTS_DIGEST_FILE_H_
#define BRIGADE_DIGESTS_DIGEST_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/append_file.h"
#include "brigade/digests/tensor_map.h"
#include "brigade/kernels/digest/digest_math.h"

namespace brigade::digests {

// What of a training's step a file has. Digests are those of whole tensors, whoever had parts.
struct StepRecord {
  // The first step is 1.
  int64_t step = 0;
  // Of an overflow: gradients then have NaN, of which no bits are promised.
  bool skipped = false;
  // By tensor. Gradients: empty where they were not summed but exchanged.
  std::vector<kernels::TensorDigest> gradients;
  std::vector<kernels::TensorDigest> weights;
};

struct DigestHeader {
  std::vector<TensorName> tensors;
  // For people: stage, ranks, grid.
  std::string run;
};

// Of a unit: the digest of its tensors' digests (tests/spec/digest.h).
kernels::TensorDigest DigestOfUnit(const std::vector<kernels::TensorDigest>& tensors);

// A line of JSON each: the header, and for each step one of each unit,
//
//   {"brigade_digests": 1, "run": "stage 2, ...", "tensors": [{"unit": "h.0", "name": "h.0.w",
//    "shape": [4, 4]}, ..]}
//   {"step": 10, "unit": "h.0", "skipped": false, "gradients": HEX, "weights": HEX,
//    "tensors": {"h.0.w": [HEX, HEX], ..}}
//
// where HEX are 32 digits, and a pair is of gradients and weights; null: there is none. Lines are
// handed to the system at once.
//
// Errors  What the system says, naming the file. A step that could not be written leaves nothing
//         behind, and the next one is tried.
class DigestFile {
 public:
  // Goes on with a file of the same tensors behind step `done`, whose later steps are cut off; with
  // 0, and where there is none, a new one. InvalidArgument for another file, and for names or a run
  // that are no UTF-8.
  static absl::StatusOr<std::unique_ptr<DigestFile>> Create(const std::string& path,
                                                            const DigestHeader& header,
                                                            int64_t done);

  absl::Status Write(const StepRecord& record);
  // Behind the last step: waits until the disk has all.
  absl::Status Sync() { return file_.Sync(); }

 private:
  DigestFile(const DigestHeader& header, device::AppendFile file)
      : header_(header), file_(std::move(file)) {}

  const DigestHeader header_;
  device::AppendFile file_;
};

struct DigestLog {
  DigestHeader header;
  // Ascending.
  std::vector<StepRecord> steps;
};

// InvalidArgument naming file and line for what is no such file, for a unit whose digest is not
// that of its tensors, and for a step that lacks tensors or has one twice; but the last step is
// left out if it lacks some, as of a run that was killed.
absl::StatusOr<DigestLog> ReadDigests(const std::string& path);

}  // namespace brigade::digests

#endif  // BRIGADE_DIGESTS_DIGEST_FILE_H_
