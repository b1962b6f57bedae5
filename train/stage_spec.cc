#include "brigade/train/stage_spec.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace brigade::train {
namespace {

// Where a parameter of the model is: the unit that has it, and its place there.
struct Place {
  int unit = 0;
  size_t in_unit = 0;
  int number = 0;
};

// Of two with one name, which CheckSpec refuses, that of the first.
std::map<std::string, Place> PlacesOf(const zero::ModelSpec& model) {
  std::map<std::string, Place> places;
  int number = 0;
  for (size_t unit = 0; unit < model.size(); ++unit) {
    for (size_t i = 0; i < model[unit].parameters.size(); ++i) {
      places.try_emplace(model[unit].parameters[i].name, Place{static_cast<int>(unit), i, number});
      ++number;
    }
  }
  return places;
}

size_t ParametersIn(const zero::ModelSpec& model) {
  size_t parameters = 0;
  for (const zero::UnitSpec& unit : model) parameters += unit.parameters.size();
  return parameters;
}

}  // namespace

StageSpec::StageSpec(const zero::ModelSpec& model)
    : StageSpec(model, {{0, static_cast<int>(model.size())}}) {}

StageSpec::StageSpec(const zero::ModelSpec& model, std::vector<parallel::StageRange> chunks)
    : chunks_(std::move(chunks)), unit_of_stage_(model.size(), -1) {
  const std::map<std::string, Place> places = PlacesOf(model);
  local_.resize(ParametersIn(model), -1);
  for (const parallel::StageRange& chunk : chunks_) {
    for (int stage = chunk.first; stage < chunk.end; ++stage) {
      unit_of_stage_[static_cast<size_t>(stage)] = units();
      stage_of_unit_.push_back(stage);
    }
  }
  const auto add = [&](const std::string& name) {
    const int parameter = places.at(name).number;
    if (local_[static_cast<size_t>(parameter)] >= 0) return;
    local_[static_cast<size_t>(parameter)] = static_cast<int>(parameters_.size());
    parameters_.push_back(parameter);
  };
  for (const int stage : stage_of_unit_) {
    const zero::UnitSpec& unit = model[static_cast<size_t>(stage)];
    for (const zero::ParameterSpec& parameter : unit.parameters) add(parameter.name);
    for (const std::string& name : unit.tied) {
      const auto place = places.find(name);
      if (place != places.end() && UnitOf(place->second.unit) < 0) add(name);
    }
  }
}

absl::Status CheckSpec(const zero::ModelSpec& model) {
  if (model.empty()) return absl::InvalidArgumentError("the model has no units");
  std::set<std::string> units, names;
  for (const zero::UnitSpec& unit : model) {
    if (!units.insert(unit.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two units are called \"", unit.name, "\""));
    }
    for (const zero::ParameterSpec& parameter : unit.parameters) {
      if (names.insert(parameter.name).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("two parameters are called \"", parameter.name, "\""));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSame(const zero::ModelSpec& whole, const zero::ModelSpec& of_stage) {
  const auto other = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the model that the factory has made for a stage of a pipeline is another than the whole "
        "one, whose units and parameters it must have all: it has ",
        what...));
  };
  if (of_stage.size() != whole.size()) {
    return other(of_stage.size(), " units, not ", whole.size());
  }
  for (size_t u = 0; u < whole.size(); ++u) {
    const zero::UnitSpec &unit = whole[u], &mine = of_stage[u];
    if (mine.name != unit.name) {
      return other("the unit \"", mine.name, "\", not \"", unit.name, "\", as number ", u);
    }
    if (mine.parameters.size() != unit.parameters.size()) {
      return other(mine.parameters.size(), " parameters, not ", unit.parameters.size(),
                   ", in the unit \"", unit.name, "\"");
    }
    for (size_t p = 0; p < unit.parameters.size(); ++p) {
      const zero::ParameterSpec &parameter = unit.parameters[p], &its = mine.parameters[p];
      if (its.name != parameter.name) {
        return other("the parameter \"", its.name, "\", not \"", parameter.name,
                     "\", in the unit \"", unit.name, "\"");
      }
      if (its.size != parameter.size) {
        return other(its.size, " elements, not ", parameter.size, ", in the parameter \"",
                     parameter.name, "\"");
      }
      if (its.trainable != parameter.trainable) {
        return other(its.trainable ? "a" : "no", " gradient of the parameter \"", parameter.name,
                     "\"");
      }
      if (its.shape != parameter.shape) {
        return other("the shape [", absl::StrJoin(its.shape, ", "), "], not [",
                     absl::StrJoin(parameter.shape, ", "), "], of the parameter \"", parameter.name,
                     "\"");
      }
      if (its.dtype != parameter.dtype || its.group != parameter.group ||
          its.low_rank != parameter.low_rank) {
        return other("another type, group or low_rank of the parameter \"", parameter.name, "\"");
      }
    }
    if (mine.tied != unit.tied) {
      return other("the unit \"", unit.name, "\" tied to \"", absl::StrJoin(mine.tied, ", "),
                   "\", not to \"", absl::StrJoin(unit.tied, ", "), "\"");
    }
  }
  return absl::OkStatus();
}

absl::Status StageSpec::Validate(int units, absl::Span<const parallel::StageRange> chunks) {
  if (chunks.empty()) return absl::InvalidArgumentError("a part of the model has no chunk");
  int end = 0;
  for (size_t c = 0; c < chunks.size(); ++c) {
    const parallel::StageRange& chunk = chunks[c];
    if (chunk.first < end || chunk.end <= chunk.first || chunk.end > units) {
      return absl::InvalidArgumentError(absl::StrCat("chunk ", c, " has the stages ", chunk.first,
                                                     " to ", chunk.end, " of ", units, ", behind ",
                                                     end));
    }
    end = chunk.end;
  }
  return absl::OkStatus();
}

std::vector<int> StageSpec::first_units() const {
  std::vector<int> units;
  for (const parallel::StageRange& chunk : chunks_) units.push_back(UnitOf(chunk.first));
  return units;
}

zero::ModelSpec StageSpec::Of(const zero::ModelSpec& model) const {
  const std::map<std::string, Place> places = PlacesOf(model);
  zero::ModelSpec spec;
  for (const int stage : stage_of_unit_) spec.push_back(model[static_cast<size_t>(stage)]);
  for (size_t stage = 0; stage < model.size(); ++stage) {
    const int user = UnitOf(static_cast<int>(stage));
    for (const std::string& name : model[stage].tied) {
      const auto place = places.find(name);
      // Which a plan refuses by its name.
      if (place == places.end()) continue;
      const int owner = UnitOf(place->second.unit);
      if (owner >= 0 && user < 0) {
        spec[static_cast<size_t>(owner)].parameters[place->second.in_unit].tied_outside = true;
      }
      if (owner >= 0 || user < 0) continue;
      zero::UnitSpec& unit = spec[static_cast<size_t>(user)];
      // A second unit of the part shares what the first one has.
      const auto is_it = [&](const zero::ParameterSpec& other) { return other.name == name; };
      const bool is_there = std::any_of(spec.begin(), spec.end(), [&](const auto& other) {
        return std::any_of(other.parameters.begin(), other.parameters.end(), is_it);
      });
      if (is_there) continue;
      unit.tied.erase(std::find(unit.tied.begin(), unit.tied.end(), name));
      zero::ParameterSpec own =
          model[static_cast<size_t>(place->second.unit)].parameters[place->second.in_unit];
      own.counted = false;
      own.tied_outside = true;
      unit.parameters.push_back(std::move(own));
    }
  }
  return spec;
}

}  // namespace brigade::train
