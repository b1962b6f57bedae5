#include "brigade/zero/internal/agreement.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/zero/internal/fingerprint.h"

namespace brigade::zero::internal {
namespace {

constexpr size_t kTextBytes = 512;

std::string Fixed(std::string text, size_t bytes = kTextBytes) {
  text.resize(bytes, '\0');
  return text;
}

std::string Text(const std::string& fixed) { return std::string(fixed.c_str()); }

template <typename T>
std::string Bytes(absl::Span<const T> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
std::vector<T> Values(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// The first rank whose bytes are not rank 0's; 0 if all are alike.
size_t FirstToDiffer(const std::vector<std::string>& all) {
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) return rank;
  }
  return 0;
}

std::string DescribeOptions(const ZeroOptions& options) {
  std::string text = absl::StrCat(
      "stage ", options.stage, ", ", precision::Name(options.dtype), ", optimizer ",
      static_cast<int>(options.optimizer.kind), " with ", options.optimizer.groups.size(),
      " groups, ", options.micro_batches, " micro-batches (accumulation ",
      static_cast<int>(options.accumulation), ", ", precision::Name(options.accumulator),
      "), max_grad_norm ", options.max_grad_norm, ", average ", options.average_gradients,
      ", bucket_elements ", options.bucket_elements, ", live_units ", options.live_units,
      ", persistence_threshold ", options.persistence_threshold, ", algorithm ",
      static_cast<int>(options.algorithm));
  for (const optim::ParameterGroup& group : options.optimizer.groups) {
    absl::StrAppend(&text, "; lr ", group.lr, " decay ", group.weight_decay, " betas ", group.beta1,
                    " ", group.beta2, " eps ", group.eps, " momentum ", group.momentum, " ",
                    group.dampening, " ", group.nesterov);
  }
  return text;
}

uint64_t ModelFingerprint(const Plan& plan) {
  uint64_t fingerprint = Fingerprint(absl::StrCat(plan.ranks()));
  for (size_t p = 0; p < plan.parameters().size(); ++p) {
    fingerprint = Fingerprint(plan.Describe(static_cast<int>(p)), fingerprint);
  }
  for (const Unit& unit : plan.units()) {
    fingerprint = Fingerprint(unit.name, fingerprint);
    for (const int p : unit.parameters)
      fingerprint = Fingerprint(absl::StrCat(p, " "), fingerprint);
  }
  return fingerprint;
}

// Ranks' models differ: which parameter is the first that does, and how.
absl::Status NameFirstDifference(const Plan& plan, size_t most, Lanes& lanes) {
  std::vector<uint64_t> mine(most, 0);
  for (size_t p = 0; p < plan.parameters().size(); ++p) {
    mine[p] = Fingerprint(plan.Describe(static_cast<int>(p)));
  }
  BRIGADE_ASSIGN_OR_RETURN(shared, lanes.Share(Bytes<uint64_t>(mine)));
  std::vector<std::vector<uint64_t>> all;
  for (const std::string& each : shared) all.push_back(Values<uint64_t>(each));
  size_t first = 0;
  const auto alike = [&](size_t p) {
    return std::all_of(all.begin(), all.end(),
                       [&](const auto& each) { return each[p] == all[0][p]; });
  };
  while (first < most && alike(first)) ++first;
  if (first == most) return absl::InvalidArgumentError("ranks disagree about the units of a model");
  const bool have = first < plan.parameters().size();
  BRIGADE_ASSIGN_OR_RETURN(
      texts, lanes.Share(Fixed(have ? plan.Describe(static_cast<int>(first)) : "nothing")));
  const size_t other = FirstToDiffer(texts);
  return absl::InvalidArgumentError(absl::StrCat("ranks disagree about parameter ", first,
                                                 ": rank 0 has ", Text(texts[0]), "; rank ", other,
                                                 " has ", Text(texts[other])));
}

}  // namespace

absl::Status AgreeOnStatus(const absl::Status& mine, Lanes& lanes) {
  std::string record(1, static_cast<char>(mine.code()));
  absl::StrAppend(&record, mine.message());
  BRIGADE_ASSIGN_OR_RETURN(all, lanes.Share(Fixed(record)));
  if (!mine.ok()) return mine;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto code = static_cast<absl::StatusCode>(all[rank][0]);
    if (code == absl::StatusCode::kOk) continue;
    return absl::Status(code, absl::StrCat("rank ", rank, ": ", Text(all[rank].substr(1))));
  }
  return absl::OkStatus();
}

absl::Status AgreeOnPlan(const Plan& plan, const ZeroOptions& options, Lanes& lanes) {
  const std::string text = DescribeOptions(options);
  const std::vector<uint64_t> mine = {Fingerprint(text), ModelFingerprint(plan),
                                      plan.parameters().size()};
  BRIGADE_ASSIGN_OR_RETURN(shared, lanes.Share(Bytes<uint64_t>(mine)));
  if (FirstToDiffer(shared) == 0) return absl::OkStatus();
  std::vector<std::vector<uint64_t>> all;
  for (const std::string& each : shared) all.push_back(Values<uint64_t>(each));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank][0] == all[0][0]) continue;
    BRIGADE_ASSIGN_OR_RETURN(texts, lanes.Share(Fixed(text)));
    return absl::InvalidArgumentError(absl::StrCat("ranks disagree about the options: rank 0 has ",
                                                   Text(texts[0]), "; rank ", rank, " has ",
                                                   Text(texts[rank])));
  }
  size_t most = 0;
  for (const auto& each : all) most = std::max(most, static_cast<size_t>(each[2]));
  return NameFirstDifference(plan, most, lanes);
}

absl::Status CheckGroups(const Plan& plan, const ZeroOptions& options) {
  const auto groups = static_cast<int32_t>(options.optimizer.groups.size());
  for (const Parameter& p : plan.parameters()) {
    if (!p.spec.trainable || p.spec.group < groups) continue;
    return absl::InvalidArgumentError(absl::StrCat("parameter \"", p.spec.name, "\": group is ",
                                                   p.spec.group, ", the optimizer has ", groups));
  }
  return absl::OkStatus();
}

uint64_t PlanFingerprint(const Plan& plan, const ZeroOptions& options) {
  return Fingerprint(absl::StrCat(optim::Moments(options.optimizer), " ",
                                  static_cast<int>(options.optimizer.kind)),
                     ModelFingerprint(plan));
}

}  // namespace brigade::zero::internal
