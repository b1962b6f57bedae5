#ifndef BRIGADE_NN_ARRAYS_H_
#define BRIGADE_NN_ARRAYS_H_

// From the untyped arrays of a layer's call to its formula's, and to what it declares to the race
// checker.

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/device/operation.h"
#include "brigade/nn/functions.h"
#include "brigade/nn/segments.h"
#include "brigade/nn/token_ids.h"
#include "brigade/nn/workspace.h"
#include "brigade/precision/dtype.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::nn {

template <typename T>
T* Typed(void* data) {
  return static_cast<T*>(data);
}
template <typename T>
const T* Typed(const void* data) {
  return static_cast<const T*>(data);
}

template <typename T>
device::Access Read(const T* data, int64_t elements) {
  return device::Reads(data, elements * static_cast<int64_t>(sizeof(T)));
}
template <typename T>
device::Access Write(T* data, int64_t elements) {
  return device::Writes(data, elements * static_cast<int64_t>(sizeof(T)));
}

inline device::Access Parts(const Workspace& workspace) {
  return device::Writes(workspace.parts(),
                        workspace.parts() == nullptr ? 0 : workspace.parts_bytes());
}

inline device::Access ReadIds(const TokenIds& ids) {
  return device::Reads(ids.data(), ids.size_bytes());
}

inline device::Access ReadLabels(const TokenIds& ids) {
  return device::Reads(ids.labels(), ids.labels_bytes());
}

// Nothing where there are no segments.
inline int64_t SegmentsSize(const Segments& segments, int64_t batch, int64_t context) {
  return segments.exist() && batch > 0 ? (batch - 1) * segments.stride + context : 0;
}
inline device::Access ReadPositions(const Segments& segments, int64_t batch, int64_t context) {
  return Read(segments.positions, SegmentsSize(segments, batch, context));
}
inline device::Access ReadEnds(const Segments& segments, int64_t batch, int64_t context) {
  return Read(segments.ends, SegmentsSize(segments, batch, context));
}

// InvalidArgument naming `operation` and what the segments lack.
inline absl::Status CheckSegments(absl::string_view operation, const Segments& segments,
                                  int64_t context) {
  if (!segments.exist() || (segments.ends != nullptr && segments.stride >= context)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(segments.ends == nullptr
                                        ? absl::StrCat(operation, ": segments without ends")
                                        : absl::StrCat(operation, ": segments of texts that are ",
                                                       segments.stride,
                                                       " positions apart, and have ", context));
}

// InvalidArgument naming `operation` and the vocabulary.
inline absl::Status CheckVocabulary(absl::string_view operation, const TokenIds& ids) {
  if (ids.vocabulary() >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(operation, ": the vocabulary is ", ids.vocabulary(), "; it must be at least 1"));
}

// call(T()) -> absl::Status for the type; InvalidArgument naming `operation` if layers do not know
// it.
template <typename Call>
absl::Status WithType(absl::string_view operation, precision::DType dtype, const Call& call) {
  absl::Status status =
      absl::InvalidArgumentError(absl::StrCat(operation, ": dtype is ", precision::ShortName(dtype),
                                              "; it must be fp32, fp16, bf16 or fp64"));
  VisitReal(dtype, [&](auto tag) { status = call(tag); });
  return status;
}

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ARRAYS_H_
