#ifndef BRIGADE_CHECKPOINT_LAYOUT_H_
#define BRIGADE_CHECKPOINT_LAYOUT_H_

// Which bytes of a checkpoint are where. Every rank computes the same: there is no exchange of
// plans.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::checkpoint {

// One array of one parameter, whole. Array 0 is the fp32 master, of a frozen parameter the weights
// in their own type; 1 and more are the fp32 moments, of trainable parameters alone. Where moments
// are codes (optim::HasCodes) parameters that have some have these as 1 and 2, uint8, and as 3 and
// 4 their scales, one for each 256 elements. Muon's matrices have no 2. Of Adafactor 1 is the
// factors, of matrices in the first elements, with one for each optim::kFactorBlock elements where
// they are few, and 2 the first moment, if any.
struct Tensor {
  int parameter = 0;
  int array = 0;
  precision::DType dtype = precision::DType::kFloat32;
  // Of the parameter, for each of the array.
  int64_t block = 1;
  int file = 0;
  // Bytes in the file.
  int64_t offset = 0;
  int64_t bytes = 0;
};

// A safetensors file.
struct TensorFile {
  // "master-00001-of-00002.safetensors"; "moment1-..." and "moment2-..." of the moments.
  std::string name = {};
  // Its first bytes, up to the data of its tensors.
  std::string header = {};
  // With the header.
  int64_t bytes = 0;
  // Its tensors, which follow each other: [first, first + count) of Layout::tensors().
  int first = 0;
  int count = 0;
};

// A part of a tensor that one rank owns: elements [begin, begin + size) of that array of its slice
// of a bucket, side by side in both.
struct Piece {
  int tensor = 0;
  int bucket = 0;
  zero::ElementRange slice = {};
  // Bytes in the tensor.
  int64_t offset = 0;
  int64_t bytes = 0;
  // Of the groups that have it alike, the one that counts it saves it (ModelPart); of those that
  // have a whole state each (ZeroOptions::shard_ranks), the first one.
  bool is_saved = true;
};

// Files hold tensors in the order of the parameters, those of wider types first, so that all begin
// at multiples of their size. A file ends before the parameter by which its data would be longer
// than `file_bytes`, if it has one already. The data of a file begins at a multiple of 4,096 bytes.
class Layout {
 public:
  // Of no parameters.
  Layout() = default;
  static constexpr int64_t kFileBytes = int64_t{4} << 30;

  // `arrays`: the master and the optimizer's moments (1 + optim::Moments), and what is behind them;
  // `kind` is the optimizer's. InvalidArgument for a name that safetensors cannot have.
  static absl::StatusOr<Layout> Create(absl::Span<const zero::Parameter> parameters, int arrays,
                                       int64_t file_bytes = kFileBytes,
                                       optim::OptimizerKind kind = optim::OptimizerKind::kAdamW);

  // As Create got them.
  const std::vector<zero::Parameter>& parameters() const { return parameters_; }
  const std::vector<TensorFile>& files() const { return files_; }
  // File by file, in the order of their data.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Bytes of all files, without the index.
  int64_t bytes() const { return bytes_; }

  // Which file holds the master of each parameter, in the convention of other tools
  // (model.safetensors.index.json).
  const std::string& index() const { return index_; }

  // What a rank owns, in the order of tensors and of its own elements. Those of all ranks that are
  // saved are all tensors, each byte once; a tensor without elements has none. `plan` is one of
  // these parameters, or of those of them, and the parts of each, that the group has, for any
  // number of ranks; `rank` is of these, and of the plan's groups of that number.
  std::vector<Piece> PiecesOf(const zero::Plan& plan, int rank, const ModelPart& part = {},
                              int shard_group = 0) const;

 private:
  std::vector<zero::Parameter> parameters_;
  std::vector<TensorFile> files_;
  std::vector<Tensor> tensors_;
  int64_t bytes_ = 0;
  std::string index_;
};

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_LAYOUT_H_
