// What ranks tell each other of a step. The fields stand one behind the other, numbers as they are
// in memory: text took three quarters of what a profile costs.

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "brigade/profile/collective_calls.h"
#include "brigade/profile/step_profile.h"

namespace brigade::profile {
namespace {

constexpr uint32_t kFirst = 0x31537042;  // "BpS1"

// Both have the same face, so that one list of fields (below) is what is written and what is read.
class Writer {
 public:
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  void Field(const Number& number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  void Field(const std::string& text) {
    Size(text.size());
    bytes_ += text;
  }
  template <typename Enum>
  void Field(const Enum& value, Enum /*last*/) {
    Field(static_cast<uint8_t>(value));
  }
  size_t Size(size_t size) {
    Field(uint64_t{size});
    return size;
  }
  bool ok() const { return true; }

  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Once something is not there, nothing is.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  template <typename Number>
  requires std::is_arithmetic_v<Number>
  void Field(Number& number) {
    const absl::string_view from = Next(sizeof(number));
    if (!ok_) return;
    std::memcpy(&number, from.data(), sizeof(number));
    if constexpr (std::is_floating_point_v<Number>) ok_ = std::isfinite(number);
  }
  void Field(std::string& text) { text = std::string(Next(Size(0))); }
  template <typename Enum>
  void Field(Enum& value, Enum last) {
    uint8_t number = 0;
    Field(number);
    ok_ = ok_ && number <= static_cast<uint8_t>(last);
    if (ok_) value = static_cast<Enum>(number);
  }
  // Of a list, or a text: nothing of it takes less than a byte.
  size_t Size(size_t /*size*/) {
    uint64_t size = 0;
    Field(size);
    ok_ = ok_ && size <= bytes_.size();
    return ok_ ? static_cast<size_t>(size) : 0;
  }
  bool ok() const { return ok_; }
  bool is_at_end() const { return bytes_.empty(); }

 private:
  absl::string_view Next(size_t size) {
    ok_ = ok_ && size <= bytes_.size();
    if (!ok_) return "";
    const absl::string_view next = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return next;
  }

  absl::string_view bytes_;
  bool ok_ = true;
};

template <typename Archive, typename Each, size_t kSize>
void Fields(Archive& archive, std::array<Each, kSize>& all);
template <typename Archive, typename Each>
void Fields(Archive& archive, std::vector<Each>& all);

template <typename Archive>
void Fields(Archive& archive, double& number) {
  archive.Field(number);
}

template <typename Archive>
void Fields(Archive& archive, Flops& flops) {
  for (double* const each :
       {&flops.products, &flops.attention, &flops.scores, &flops.norms, &flops.pointwise}) {
    archive.Field(*each);
  }
}

template <typename Archive>
void Fields(Archive& archive, UnitSize& unit) {
  archive.Field(unit.name);
  archive.Field(unit.parameters);
  Fields(archive, unit.flops);
}

template <typename Archive>
void Fields(Archive& archive, Row& row) {
  archive.Field(row.stream);
  archive.Field(row.place.unit);
  archive.Field(row.place.pass, Pass::kNone);
  archive.Field(row.kind, Kind::kIdle);
  archive.Field(row.name);
  archive.Field(row.calls);
  archive.Field(row.seconds);
  archive.Field(row.bytes);
  Fields(archive, row.limits);
}

template <typename Archive>
void Fields(Archive& archive, Sent& sent) {
  archive.Field(sent.to);
  archive.Field(sent.bytes);
}

template <typename Archive>
void Fields(Archive& archive, CollectiveCalls& calls) {
  archive.Field(calls.stream);
  archive.Field(calls.name);
  archive.Field(calls.calls);
  archive.Field(calls.seconds);
  archive.Field(calls.waiting_seconds);
  archive.Field(calls.sent_bytes);
}

template <typename Archive>
void Fields(Archive& archive, Ceilings& ceilings) {
  archive.Field(ceilings.flops_per_second);
  archive.Field(ceilings.memory_bytes_per_second);
  archive.Field(ceilings.network_bytes_per_second);
  archive.Field(ceilings.source);
  std::map<std::string, double>& rates = ceilings.collective_bytes_per_second;
  auto at = rates.begin();
  const size_t size = archive.Size(rates.size());
  for (size_t i = 0; i < size && archive.ok(); ++i) {
    std::string name = at == rates.end() ? "" : at->first;
    double rate = at == rates.end() ? 0 : (at++)->second;
    archive.Field(name);
    archive.Field(rate);
    rates[name] = rate;
  }
}

template <typename Archive, typename Each, size_t kSize>
void Fields(Archive& archive, std::array<Each, kSize>& all) {
  for (Each& each : all) Fields(archive, each);
}

template <typename Archive, typename Each>
void Fields(Archive& archive, std::vector<Each>& all) {
  const size_t size = archive.Size(all.size());
  for (size_t i = 0; i < size && archive.ok(); ++i) {
    if (i == all.size()) all.emplace_back();
    Fields(archive, all[i]);
  }
}

template <typename Archive>
void Fields(Archive& archive, RankStep& step) {
  archive.Field(step.seconds);
  Fields(archive, step.units);
  Fields(archive, step.rows);
  archive.Field(step.main);
  Fields(archive, step.sent);
  Fields(archive, step.calls);
  Fields(archive, step.ceilings);
  archive.Field(step.dropped);
}

}  // namespace

std::string ToBytes(RankStep step) {
  Writer writer;
  writer.Field(kFirst);
  Fields(writer, step);
  return writer.Take();
}

absl::StatusOr<RankStep> RankStepFromBytes(absl::string_view bytes) {
  Reader reader(bytes);
  uint32_t first = 0;
  RankStep step;
  reader.Field(first);
  if (first == kFirst) Fields(reader, step);
  if (first == kFirst && reader.ok() && reader.is_at_end()) return step;
  return absl::InvalidArgumentError("what a rank has told is no profile");
}

}  // namespace brigade::profile
