#include "brigade/kernels/flatten/flatten.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/cast/cast_list.h"
#include "brigade/kernels/list_arguments.h"

namespace brigade::kernels {
namespace {

absl::Status CheckFlatBuffer(absl::string_view operation, const FlatBuffer& flat) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType(operation, "flat buffer", flat.dtype));
  if (flat.size < 0 || (flat.data == nullptr && flat.size > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": flat buffer ",
                                                   flat.data == nullptr ? "is null with " : "has ",
                                                   flat.size, " elements"));
  }
  if (flat.size > static_cast<int64_t>(kAddressSpace) / precision::SizeOf(flat.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": flat buffer has ", flat.size,
                                                   " elements, more than any address space"));
  }
  return absl::OkStatus();
}

absl::Status CheckPlace(absl::string_view operation, size_t index, const FlatSlot& slot,
                        const FlatBuffer& flat) {
  if (slot.size >= 0 && slot.offset >= 0 && slot.size <= flat.size &&
      slot.offset <= flat.size - slot.size) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(operation, ": segment ", index, " takes ",
                                                 slot.size, " elements from ", slot.offset,
                                                 " on, but the flat buffer has ", flat.size));
}

// A flatten is a list of casts between the tensors and their places.
absl::Status Move(const CastNames& names, bool into_flat, absl::Span<const FlatSlot> slots,
                  const FlattenOptions& options, const FlatBuffer& flat, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckFlatBuffer(names.operation, flat));
  thread_local std::vector<CastSegment> segments;
  segments.clear();
  const int64_t element_bytes = precision::SizeOf(flat.dtype);
  for (size_t i = 0; i < slots.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(CheckPlace(names.operation, i, slots[i], flat));
    void* const place = static_cast<char*>(flat.data) + slots[i].offset * element_bytes;
    if (into_flat) {
      segments.push_back({slots[i].tensor, place, slots[i].size});
    } else {
      segments.push_back({place, slots[i].tensor, slots[i].size});
    }
  }
  CastOptions cast = {options.tensor_dtype, flat.dtype, options.scale, options.accumulate};
  if (!into_flat) std::swap(cast.source_dtype, cast.target_dtype);
  return CastList(names, segments, cast, stream);
}

}  // namespace

absl::Status Flatten(absl::Span<const FlatSlot> slots, const FlattenOptions& options,
                     const FlatBuffer& flat, device::Stream& stream) {
  return Move({"flatten", "tensor", "flat buffer"}, true, slots, options, flat, stream);
}

absl::Status Unflatten(const FlatBuffer& flat, absl::Span<const FlatSlot> slots,
                       const FlattenOptions& options, device::Stream& stream) {
  return Move({"unflatten", "flat buffer", "tensor"}, false, slots, options, flat, stream);
}

}  // namespace brigade::kernels
