#include "brigade/kernels/flatten/flatten.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/cast/cast_list.h"
#include "brigade/kernels/list_arguments.h"

namespace brigade::kernels {
namespace {

absl::Status CheckBucket(absl::string_view operation, const Bucket& bucket) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType(operation, "bucket", bucket.dtype));
  if (bucket.size < 0 || (bucket.data == nullptr && bucket.size > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": bucket ", bucket.data == nullptr ? "is null with " : "has ",
                     bucket.size, " elements"));
  }
  if (bucket.size > static_cast<int64_t>(kAddressSpace) / precision::SizeOf(bucket.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": bucket has ", bucket.size,
                                                   " elements, more than any address space"));
  }
  return absl::OkStatus();
}

absl::Status CheckPlace(absl::string_view operation, size_t index, const BucketSlot& slot,
                        const Bucket& bucket) {
  if (slot.size >= 0 && slot.bucket_offset >= 0 && slot.size <= bucket.size &&
      slot.bucket_offset <= bucket.size - slot.size) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(operation, ": segment ", index, " takes ",
                                                 slot.size, " elements from ", slot.bucket_offset,
                                                 " on, but the bucket has ", bucket.size));
}

// A flatten is a list of casts between the tensors and their places.
absl::Status Move(const CastNames& names, bool into_bucket, absl::Span<const BucketSlot> slots,
                  const FlattenOptions& options, const Bucket& bucket, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckBucket(names.operation, bucket));
  thread_local std::vector<CastSegment> segments;
  segments.clear();
  const int64_t element_bytes = precision::SizeOf(bucket.dtype);
  for (size_t i = 0; i < slots.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(CheckPlace(names.operation, i, slots[i], bucket));
    void* const place = static_cast<char*>(bucket.data) + slots[i].bucket_offset * element_bytes;
    if (into_bucket) {
      segments.push_back({slots[i].tensor, place, slots[i].size});
    } else {
      segments.push_back({place, slots[i].tensor, slots[i].size});
    }
  }
  CastOptions cast = {options.tensor_dtype, bucket.dtype, options.scale, options.accumulate};
  if (!into_bucket) std::swap(cast.source_dtype, cast.target_dtype);
  return CastList(names, segments, cast, stream);
}

}  // namespace

absl::Status Flatten(absl::Span<const BucketSlot> slots, const FlattenOptions& options,
                     const Bucket& bucket, device::Stream& stream) {
  return Move({"flatten", "tensor", "bucket"}, true, slots, options, bucket, stream);
}

absl::Status Unflatten(const Bucket& bucket, absl::Span<const BucketSlot> slots,
                       const FlattenOptions& options, device::Stream& stream) {
  return Move({"unflatten", "bucket", "tensor"}, false, slots, options, bucket, stream);
}

}  // namespace brigade::kernels
