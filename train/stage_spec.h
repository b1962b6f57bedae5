#ifndef BRIGADE_TRAIN_STAGE_SPEC_H_
#define BRIGADE_TRAIN_STAGE_SPEC_H_

// What of a model one stage of a pipeline has: ranges of the model's stages, which are its units,
// with units and parameters that are numbered anew.

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/parallel/pipeline/stage_range.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::train {

// InvalidArgument for a model without units, or naming what two units or two parameters are called:
// of a whole model, as two stages would not see that they have the same.
absl::Status CheckSpec(const zero::ModelSpec& model);

// InvalidArgument naming the first difference, unless the model that is made for a stage is the
// whole one in its units, their parameters and ties.
absl::Status CheckSame(const zero::ModelSpec& whole, const zero::ModelSpec& of_stage);

// The chunks that one rank has: without a pipeline the whole model as one chunk. Its units are the
// chunks' in their order, and its parameters the units'. A unit that uses a parameter of another
// one (UnitSpec::tied) uses that of the part, if it is there; else it has it as one of its own,
// behind the others.
class StageSpec {
 public:
  // The whole model, for which CheckSpec is OK.
  explicit StageSpec(const zero::ModelSpec& model);
  // Ranges in ascending order, for which Validate is OK.
  StageSpec(const zero::ModelSpec& model, std::vector<parallel::StageRange> chunks);

  // InvalidArgument naming the chunk, unless there is one, and each has a unit, lies in the model
  // of so many, and behind the one before.
  static absl::Status Validate(int units, absl::Span<const parallel::StageRange> chunks);

  const std::vector<parallel::StageRange>& chunks() const { return chunks_; }
  int units() const { return static_cast<int>(stage_of_unit_.size()); }
  // The unit of a stage of the model, -1 if another rank has it; and back.
  int UnitOf(int stage) const { return unit_of_stage_[static_cast<size_t>(stage)]; }
  int StageOf(int unit) const { return stage_of_unit_[static_cast<size_t>(unit)]; }
  // The part's number of a parameter of the whole model, -1 if another rank has it; and the whole
  // model's numbers, in the order of the part's.
  int ParameterOf(int parameter) const { return local_[static_cast<size_t>(parameter)]; }
  const std::vector<int>& parameters() const { return parameters_; }
  // UnitOf and ParameterOf of all.
  absl::Span<const int> unit_numbers() const { return unit_of_stage_; }
  absl::Span<const int> parameter_numbers() const { return local_; }
  // Of each chunk.
  std::vector<int> first_units() const;

  bool has_begin() const { return !unit_of_stage_.empty() && unit_of_stage_.front() >= 0; }
  bool has_end() const { return !unit_of_stage_.empty() && unit_of_stage_.back() >= 0; }
  // It is one chunk of all units.
  bool is_whole() const { return chunks_[0].size() == static_cast<int>(unit_of_stage_.size()); }

  // The part's units of a model with the units and parameters of that of the constructor. What a
  // unit of the part and one of another share is tied outside; that of the unit that has it in the
  // whole model is counted.
  zero::ModelSpec Of(const zero::ModelSpec& model) const;

 private:
  std::vector<parallel::StageRange> chunks_;
  // [stage of the model], [unit].
  std::vector<int> unit_of_stage_, stage_of_unit_;
  // [parameter of the model], [parameter].
  std::vector<int> local_, parameters_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_STAGE_SPEC_H_
