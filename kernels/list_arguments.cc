#include "brigade/kernels/list_arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::kernels {

absl::Status CheckFloatType(absl::string_view operation, absl::string_view name,
                            precision::DType dtype) {
  if (precision::IsTrainingFormat(dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": dtype of ", name, " is ",
                                                 precision::ShortName(dtype),
                                                 ", must be fp32, fp16 or bf16"));
}

ListArguments::Scratch& ListArguments::ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

ListArguments::ListArguments(absl::string_view operation, absl::Span<const ArrayRole> roles,
                             const device::Stream& stream)
    : operation_(operation),
      device_(stream.device()),
      checks_races_(stream.checks_races()),
      role_count_(static_cast<int>(roles.size())),
      scratch_(ThreadScratch()) {
  std::copy(roles.begin(), roles.end(), roles_.begin());
  scratch_.ranges.clear();
  scratch_.accesses.clear();
}

std::string ListArguments::Label(int role, int64_t segment) const {
  if (segment < 0) return std::string(roles_[role].name);
  return absl::StrCat(roles_[role].name, " of segment ", segment);
}

absl::Status ListArguments::AddArray(int role, int64_t segment, const void* data, int64_t size) {
  const ArrayRole& array = roles_[role];
  const auto invalid = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation_, ": ", Label(role, segment), what...));
  };
  if (size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation_, ": segment ", segment, " has negative size ", size));
  }
  if (!array.present) {
    return data == nullptr ? absl::OkStatus() : invalid(" is given, but its type is not");
  }
  if (size == 0) return absl::OkStatus();
  if (data == nullptr) return invalid(" is null with ", size, " elements");
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data);
  const int64_t alignment = array.alignment == 0 ? array.element_bytes : array.alignment;
  if (begin % alignment != 0) {
    return invalid(" is at address ", begin, ", not a multiple of its element's ", alignment,
                   " bytes");
  }
  if (size >
      static_cast<int64_t>(kAddressSpace - std::min(begin, kAddressSpace)) / array.element_bytes) {
    return invalid(" has ", size, " elements, more than any address space");
  }
  const uintptr_t end = begin + size * array.element_bytes;
  if (const device::AddressRegistry::Region* const known = lookups_[role].Find(data)) {
    if (known->device != device_) {
      return invalid(" is in memory of ", known->device.ToString(), ", but the stream is on ",
                     device_.ToString());
    }
    // A borrow's end says less: what follows it may be its owner's as well.
    if (known->owned && end > known->end) {
      return invalid(" has ", size, " elements and reaches ", end - known->end,
                     " bytes past its buffer");
    }
  }
  Hull& hull = hulls_[role];
  hull.ascending = hull.ascending && begin >= hull.end;
  if (hull.end == 0) hull.begin = begin;
  hull.end = end;
  scratch_.ranges.push_back({begin, end, segment, role});
  if (checks_races_) {
    // Neighbours in one buffer become one access.
    std::vector<device::Access>& accesses = scratch_.accesses;
    if (!accesses.empty() && accesses.back().write == array.write &&
        static_cast<const char*>(accesses.back().data) + accesses.back().bytes == data) {
      accesses.back().bytes += size * array.element_bytes;
    } else {
      accesses.push_back({data, size * array.element_bytes, array.write});
    }
  } else {
    std::vector<device::Access>& accesses = scratch_.accesses;
    if (accesses.empty()) accesses.push_back({});
    accesses[0].bytes += (array.write && array.reads ? 2 : 1) * size * array.element_bytes;
  }
  return absl::OkStatus();
}

absl::Status ListArguments::Add(int64_t index, int64_t size, absl::Span<const void* const> arrays) {
  for (size_t role = 0; role < arrays.size(); ++role) {
    BRIGADE_RETURN_IF_ERROR(AddArray(static_cast<int>(role), index, arrays[role], size));
  }
  return absl::OkStatus();
}

absl::Status ListArguments::AddOperand(const ArrayRole& role, const void* data, int64_t elements) {
  roles_[role_count_] = role;
  return AddArray(role_count_++, -1, data, elements);
}

bool ListArguments::HullsAreDisjoint() const {
  for (int i = 0; i < role_count_; ++i) {
    if (roles_[i].write && !hulls_[i].ascending) return false;
    for (int j = 0; j < i; ++j) {
      if (!roles_[i].write && !roles_[j].write) continue;
      if (!hulls_[i].ascending || !hulls_[j].ascending) return false;
      if (hulls_[i].begin < hulls_[j].end && hulls_[j].begin < hulls_[i].end) return false;
    }
  }
  return true;
}

absl::Status ListArguments::CheckOverlap() {
  if (HullsAreDisjoint()) return absl::OkStatus();
  std::vector<Range>& ranges = scratch_.ranges;
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  // Of the ranges so far, the one that ends last, and the same among those written.
  const Range* last = nullptr;
  const Range* last_written = nullptr;
  for (const Range& range : ranges) {
    const bool write = roles_[range.role].write;
    const Range* before = write ? last : last_written;
    if (before != nullptr && range.begin < before->end) {
      return absl::InvalidArgumentError(
          absl::StrCat(operation_, ": ", Label(before->role, before->segment), " and ",
                       Label(range.role, range.segment), " overlap in ",
                       std::min(before->end, range.end) - range.begin, " bytes"));
    }
    if (last == nullptr || range.end > last->end) last = &range;
    if (write && (last_written == nullptr || range.end > last_written->end)) last_written = &range;
  }
  return absl::OkStatus();
}

absl::Span<const device::Access> ListArguments::accesses() const {
  // A list without elements says so: nothing declared would be something forgotten.
  static constexpr device::Access kNothing = {};
  if (scratch_.accesses.empty()) return absl::MakeConstSpan(&kNothing, 1);
  return scratch_.accesses;
}

}  // namespace brigade::kernels
