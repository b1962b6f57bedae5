#ifndef BRIGADE_PARALLEL_PIPELINE_LIST_INDEX_H_
#define BRIGADE_PARALLEL_PIPELINE_LIST_INDEX_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/parallel/pipeline/item.h"

namespace brigade::parallel {

// Where on its list each item of a stage is.
class ListIndex {
 public:
  static constexpr int kAbsent = -1;

  // InvalidArgument naming the item, unless each one is of the shape, has another end if it is a
  // transfer, is of a collective of this stage if it is that, and is there once.
  static absl::StatusOr<ListIndex> Create(const PipelineSchedule& schedule, int stage);

  // kAbsent: it is not there.
  int PositionOf(const PipelineItem& item) const;
  bool Has(const PipelineItem& item) const { return PositionOf(item) != kAbsent; }

 private:
  ListIndex(const PipelineShape& shape, size_t collectives);
  size_t SlotOf(const PipelineItem& item) const;

  PipelineShape shape_;
  std::vector<int> positions_;
};

// Of all stages. InvalidArgument also if the shape is none, or there is no list for each stage.
absl::StatusOr<std::vector<ListIndex>> IndexLists(const PipelineSchedule& schedule);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_LIST_INDEX_H_
