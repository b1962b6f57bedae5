#include "brigade/digests/first_difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/device/status_macros.h"
#include "brigade/digests/copies.h"
#include "brigade/digests/tensor_dump.h"
#include "brigade/kernels/digest/digest_cpu.h"
#include "brigade/precision/dtype.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/precision/float16.h"

namespace brigade::digests {
namespace {

using kernels::TensorDigest;

bool Same(const TensorDigest& a, const TensorDigest& b) {
  return a.words[0] == b.words[0] && a.words[1] == b.words[1];
}

std::string Describe(const TensorName& tensor) {
  return absl::StrCat(tensor.name, " [", absl::StrJoin(tensor.shape, ", "), "] of unit \"",
                      tensor.unit, "\"");
}

absl::Status CheckSameTensors(const DigestHeader& a, const DigestHeader& b) {
  for (size_t t = 0; t < std::max(a.tensors.size(), b.tensors.size()); ++t) {
    const std::string first = t < a.tensors.size() ? Describe(a.tensors[t]) : "nothing";
    const std::string second = t < b.tensors.size() ? Describe(b.tensors[t]) : "nothing";
    if (first == second) continue;
    return absl::InvalidArgumentError(absl::StrCat("the two trained other models: tensor ", t,
                                                   " is ", first, " in one, ", second,
                                                   " in the other"));
  }
  return absl::OkStatus();
}

// In the order in which a step makes them.
std::vector<int> Differing(const std::vector<TensorName>& tensors,
                           const std::vector<TensorDigest>& a, const std::vector<TensorDigest>& b,
                           bool last_unit_first) {
  std::vector<int> found;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (!Same(a[t], b[t])) found.push_back(static_cast<int>(t));
  }
  if (!last_unit_first) return found;
  // By unit, and within it in its order.
  std::map<std::string, size_t> units;
  for (const TensorName& tensor : tensors) units.emplace(tensor.unit, units.size());
  const auto unit_of = [&](int t) { return units.at(tensors[static_cast<size_t>(t)].unit); };
  std::stable_sort(found.begin(), found.end(),
                   [&](int x, int y) { return unit_of(x) > unit_of(y); });
  return found;
}

std::optional<Difference> DifferenceOf(const std::vector<TensorName>& tensors, const StepRecord& a,
                                       const StepRecord& b) {
  const auto at = [&](const char* kind, const std::vector<int>& found) {
    Difference difference;
    difference.step = a.step;
    difference.kind = kind;
    difference.one_skips = a.skipped != b.skipped;
    if (!found.empty()) difference.tensor = found[0];
    for (const int t : found) {
      difference.tensors.push_back(tensors[static_cast<size_t>(t)].name);
    }
    return difference;
  };
  // No bits are promised of NaN: of a step that both skip gradients are not compared. Where one
  // alone skips it, what has NaN there differs from what the other one has, and says where it came
  // from.
  const bool has_gradients = !a.gradients.empty() && !b.gradients.empty();
  if (has_gradients && !(a.skipped && b.skipped)) {
    const auto found = Differing(tensors, a.gradients, b.gradients, true);
    if (!found.empty()) return at("gradients", found);
  }
  if (a.skipped != b.skipped) return at("skipped", {});
  const auto found = Differing(tensors, a.weights, b.weights, false);
  if (!found.empty()) return at("weights", found);
  return std::nullopt;
}

uint32_t BitsAt(const DumpedTensor& tensor, int64_t i) {
  uint32_t bits = 0;
  const auto width = static_cast<size_t>(precision::SizeOf(tensor.dtype));
  std::memcpy(&bits, tensor.bytes.data() + static_cast<size_t>(i) * width, width);
  return bits;
}

double ValueOf(precision::DType dtype, uint32_t bits) {
  const auto half = static_cast<uint16_t>(bits);
  switch (dtype) {
    case precision::DType::kFloat16:
      return static_cast<double>(static_cast<float>(__builtin_bit_cast(precision::Half, half)));
    case precision::DType::kBFloat16:
      return static_cast<double>(static_cast<float>(__builtin_bit_cast(precision::BFloat16, half)));
    default:
      return static_cast<double>(__builtin_bit_cast(float, bits));
  }
}

std::vector<int64_t> IndicesOf(int64_t element, const std::vector<int64_t>& shape) {
  std::vector<int64_t> at(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    at[d] = element % shape[d];
    element /= shape[d];
  }
  return at;
}

}  // namespace

absl::StatusOr<Compared> FirstDifference(const DigestLog& a, const DigestLog& b) {
  BRIGADE_RETURN_IF_ERROR(CheckSameTensors(a.header, b.header));
  Compared compared;
  int64_t alike = 0, alone = 0;
  for (size_t i = 0, j = 0; i < a.steps.size() && j < b.steps.size();) {
    const StepRecord &first = a.steps[i], &second = b.steps[j];
    if (first.step != second.step) {
      ++(first.step < second.step ? i : j);
      // One training may have begun later.
      if (compared.steps > 0) ++alone;
      continue;
    }
    ++compared.steps;
    // Or have ended earlier: what comes behind the last step of both is not counted.
    compared.alone = alone;
    compared.difference = DifferenceOf(a.header.tensors, first, second);
    if (compared.difference.has_value()) {
      compared.difference->alike = alike;
      return compared;
    }
    alike = first.step;
    ++i;
    ++j;
  }
  if (compared.steps == 0) {
    return absl::InvalidArgumentError("the two have no step in common");
  }
  return compared;
}

absl::StatusOr<TensorDifference> CompareDumps(const Difference& difference,
                                              const DigestLog (&logs)[2],
                                              const std::string (&folders)[2], int most) {
  if (difference.tensor < 0) {
    return absl::InvalidArgumentError("one of the two skips the step, which no tensor shows");
  }
  const auto t = static_cast<size_t>(difference.tensor);
  const TensorName& tensor = logs[0].header.tensors[t];
  DumpedTensor sides[2];
  for (int side = 0; side < 2; ++side) {
    BRIGADE_ASSIGN_OR_RETURN(sides[side], ReadDumped(folders[side], difference.kind, tensor));
    const auto bytes = static_cast<int64_t>(sides[side].bytes.size());
    const TensorDigest digest =
        kernels::DigestRange({sides[side].bytes.data(), bytes, 0, 0, 0, 0}, 0, bytes);
    const std::vector<StepRecord>& steps = logs[side].steps;
    const auto record = std::find_if(steps.begin(), steps.end(), [&](const StepRecord& each) {
      return each.step == difference.step;
    });
    const TensorDigest& wanted =
        (difference.kind == "weights" ? record->weights : record->gradients)[t];
    if (Same(digest, wanted)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        sides[side].path, " has the digest ", ToHex(digest), ", but the run had ", ToHex(wanted),
        " in step ", difference.step, ": it is of another step or run"));
  }
  if (sides[0].dtype != sides[1].dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        tensor.name, " is ", std::string(precision::ShortName(sides[0].dtype)), " in one, ",
        std::string(precision::ShortName(sides[1].dtype)), " in the other"));
  }
  TensorDifference result;
  for (int side = 0; side < 2; ++side) result.paths[side] = sides[side].path;
  for (int64_t i = 0; i < tensor.size; ++i) {
    const uint32_t bits[2] = {BitsAt(sides[0], i), BitsAt(sides[1], i)};
    if (bits[0] == bits[1]) continue;
    ++result.differing;
    const double values[2] = {ValueOf(sides[0].dtype, bits[0]), ValueOf(sides[0].dtype, bits[1])};
    const double distance = std::fabs(values[0] - values[1]);
    // Once NaN it stays.
    if (std::isnan(distance) || distance > result.largest) result.largest = distance;
    if (static_cast<int>(result.first.size()) >= most) continue;
    result.first.push_back(
        {i, IndicesOf(i, tensor.shape), {bits[0], bits[1]}, {values[0], values[1]}});
  }
  return result;
}

}  // namespace brigade::digests
