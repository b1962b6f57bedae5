#ifndef BRIGADE_DIGESTS_TENSOR_MAP_H_
#define BRIGADE_DIGESTS_TENSOR_MAP_H_

// Which elements of a model's tensors a rank's arrays are, wherever they lie: in a slice of a
// bucket, of a shard of a matrix, of a stage of a pipeline.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/parallel/shard.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/step_observer.h"

namespace brigade::digests {

// Elements that follow each other on a rank, of what it holds of a tensor. `run` of them are
// neighbours in the whole tensor too, and the next ones begin `stride` elements after those; run 0:
// all of them.
struct ShardPiece {
  int64_t local = 0;
  int64_t size = 0;
  // In the whole tensor.
  int64_t first = 0;
  int64_t run = 0;
  int64_t stride = 0;
};

// The elements [begin, end) of what a rank holds, in order: at most two pieces for each of its
// shards, however many rows these have.
std::vector<ShardPiece> PiecesOf(const parallel::Shard& shard, const parallel::TensorShards& shards,
                                 int64_t begin, int64_t end);

// The same in memory, in bytes.
struct TensorPiece {
  // Its number in the model.
  int tensor = 0;
  const char* data = nullptr;
  int64_t size = 0;
  int64_t first = 0;
  int64_t run = 0;
  int64_t stride = 0;
};

// A tensor of the whole model, by its number there.
struct TensorName {
  std::string unit;
  std::string name;
  std::vector<int64_t> shape;
  int64_t size = 0;
};

// Of one rank.
class TensorMap {
 public:
  // What it keeps of the two are copies. InvalidArgument naming a parameter of the plan that the
  // model does not have, or of another size.
  static absl::StatusOr<TensorMap> Create(const checkpoint::ModelPart& part,
                                          const zero::Plan& plan);

  // Of the whole model, the same on all ranks.
  const std::vector<TensorName>& tensors() const { return tensors_; }

  // What this rank has of a tensor: all, shards of it, or nothing; and whether the rank's group is
  // the one that counts it, of those that have it alike.
  bool holds(int tensor) const { return held_[static_cast<size_t>(tensor)].holds; }
  bool is_cut(int tensor) const { return held_[static_cast<size_t>(tensor)].is_cut; }
  bool counts(int tensor) const { return held_[static_cast<size_t>(tensor)].counts; }

  // Of the tensor shards of what is cut.
  int first_shard() const { return shards_.first(); }

  // Calls visit(piece) for the elements of an array, without padding.
  void ForEachPiece(const zero::ObservedArray& array,
                    absl::FunctionRef<void(const TensorPiece&)> visit) const;
  // At most so many pieces for all buckets at once.
  int64_t most_pieces() const { return most_pieces_; }

 private:
  struct Held {
    bool holds = false, is_cut = false, counts = false;
  };
  struct Entry {
    int tensor = 0;
    zero::ElementRange range = {};
  };

  std::vector<TensorName> tensors_;
  // By tensor.
  std::vector<Held> held_;
  std::vector<parallel::Shard> shards_of_;
  parallel::TensorShards shards_;
  // By bucket.
  std::vector<std::vector<Entry>> buckets_;
  int64_t most_pieces_ = 0;
};

}  // namespace brigade::digests

#endif  // BRIGADE_DIGESTS_TENSOR_MAP_H_
