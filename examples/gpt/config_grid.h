#ifndef BRIGADE_EXAMPLES_GPT_CONFIG_GRID_H_
#define BRIGADE_EXAMPLES_GPT_CONFIG_GRID_H_

// What the keys of a config and the flags beside it say together of the ranks that share a model.

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/examples/gpt/config.h"
#include "brigade/examples/gpt/config_keys.h"
#include "brigade/examples/gpt/json_reader.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/replicas/options.h"

namespace brigade::gpt {

inline constexpr int kMostSharingRanks = 1 << 15;

// What a user has said, and where: errors have the words of the source.
struct Said {
  const Json& file;
  // Those that are given, by their names: "--lr".
  Json flags;

  // The value of "fp16.loss_scale" or "--lr"; null where it is not given.
  const Json* Find(absl::string_view path) const;
  // The flag where it is given, else the key.
  std::string Name(absl::string_view flag, absl::string_view key) const;
};

// Whether gradients' codes are to have error feedback.
bool HasLoco(const Said& said);

Json FlagsOf(const ModelParallelism& model, const StepFlags& step);

// ModelParallelism of flags and file together. Schedule, partition and exchange only where a user
// has said them.
struct Sharing {
  int tensor = 1;
  int context = 1;
  int tensor_shards = 1;
  int tensor_pieces = 1;
  bool tensor_overlap = false;
  bool sequence_parallel = false;
  std::optional<ContextExchange> context_exchange = {};
  int pipeline = 1;
  // 0: all that have the same weights.
  int shard_ranks = 0;
  // Of these, near each other; 0: none.
  int hpz_ranks = 0;
  std::optional<parallel::ScheduleChoice> schedule = {};
  std::optional<parallel::PartitionChoice> partition = {};
  // 0: the ranks train one.
  int replicas = 0;
  replicas::OuterOptions outer = {};
};

// Flags before the file, but for numbers of flags that cannot be.
Sharing Merged(const Settings& settings, const ModelParallelism& flags);

// InvalidArgument where the optimizer needs whole tensors, and ranks have parts of each.
absl::Status CheckTensors(const Said& said, optim::OptimizerKind optimizer,
                          const parallel::GridShape& grid);

// With the data ranks that are left. InvalidArgument naming the numbers that are no grid of `ranks`
// ranks.
absl::StatusOr<parallel::GridShape> GridOf(const Said& said, const Sharing& sharing, int ranks);

// The flag, or the key, that says how many ranks share a state.
std::string ShardsName(const Said& said);
// InvalidArgument naming the number unless ranks with the same weights, of each replica where there
// are such, can be cut into groups that share a state; and these into ranks near each other.
absl::Status CheckShards(const Said& said, const Sharing& sharing, const parallel::GridShape& grid);
absl::Status CheckNear(const Sharing& sharing, const parallel::GridShape& grid);
// The same unless the ranks can be shared out among replicas.
absl::Status CheckReplicas(const Said& said, const Sharing& sharing,
                           const parallel::GridShape& grid);
// The ranks that share a state.
int SharersOf(const Sharing& sharing, const parallel::GridShape& grid);

// InvalidArgument naming the numbers that do not fit.
absl::Status CheckPipeline(const Said& said, const parallel::PipelineShape& shape);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_CONFIG_GRID_H_
