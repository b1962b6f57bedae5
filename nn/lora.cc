#include "brigade/nn/lora.h"

#include <algorithm>

#include "brigade/device/status_macros.h"

namespace brigade::nn {
namespace {

Operand In(const void* data, int64_t leading, bool transposed = false) {
  return {const_cast<void*>(data), leading, transposed};
}

int64_t LeadingOf(const LoraInput& input) {
  return input.y_leading == 0 ? input.outputs : input.y_leading;
}

bool Drops(const LoraInput& input) { return input.dropout.probability != 0; }

// Calls drop(first row, rows, mask) for each run of the rows from `first` on.
template <typename Drop>
absl::Status ForEachRun(const LoraInput& input, int64_t first, int64_t rows, const Drop& drop) {
  const auto of = [&](int64_t begin, int64_t end, int64_t global) {
    DropoutMask mask = input.dropout;
    mask.first_element += global * input.inputs;
    return drop(begin, end - begin, mask);
  };
  if (input.runs.empty()) return of(first, first + rows, first);
  for (const RowRun& run : input.runs) {
    const int64_t begin = std::max(first, run.local);
    const int64_t end = std::min(first + rows, run.local + run.count);
    if (begin < end) BRIGADE_RETURN_IF_ERROR(of(begin, end, run.global + begin - run.local));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<const void*> LoraDropped(const LoraInput& input, int64_t first, int64_t rows,
                                        void* to, device::Stream& stream) {
  const int64_t bytes = input.inputs * precision::SizeOf(input.dtype);
  const char* const x = static_cast<const char*>(input.x) + first * bytes;
  if (!Drops(input)) return x;
  BRIGADE_RETURN_IF_ERROR(
      ForEachRun(input, first, rows, [&](int64_t row, int64_t count, const DropoutMask& mask) {
        const int64_t offset = (row - first) * bytes;
        return Dropout(input.dtype, count * input.inputs, mask, x + offset, nullptr,
                       static_cast<char*>(to) + offset, stream);
      }));
  return to;
}

absl::StatusOr<const void*> LoraDown(const LoraInput& input, const LoraScratch& scratch, Blas& blas,
                                     device::Stream& stream) {
  BRIGADE_ASSIGN_OR_RETURN(const void* const x,
                           LoraDropped(input, 0, input.rows, scratch.x, stream));
  BRIGADE_RETURN_IF_ERROR(blas.Gemm({.dtype = input.dtype,
                                     .m = input.rows,
                                     .n = input.rank,
                                     .k = input.inputs,
                                     .a = In(x, input.inputs),
                                     .b = In(input.a, input.inputs, true),
                                     .c = {scratch.hidden, input.rank}},
                                    stream));
  return x;
}

absl::Status Lora(const LoraInput& input, const LoraScratch& scratch, void* y, Blas& blas,
                  device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(LoraDown(input, scratch, blas, stream).status());
  return LoraUp(input, scratch.hidden, y, blas, stream);
}

absl::Status LoraBackward(const LoraInput& input, const LoraScratch& scratch, const void* dy,
                          void* dx, Gradient da, Gradient db, Blas& blas, device::Stream& stream) {
  BRIGADE_ASSIGN_OR_RETURN(const void* const x, LoraDown(input, scratch, blas, stream));
  BRIGADE_RETURN_IF_ERROR(
      LoraUpBackward(input, scratch.hidden, dy, scratch.dhidden, db, blas, stream));
  return LoraDownBackward(input, scratch, x, dx, da, blas, stream);
}

absl::Status LoraDownBackward(const LoraInput& input, const LoraScratch& scratch,
                              const void* dropped, void* dx, Gradient da, Blas& blas,
                              device::Stream& stream) {
  if (da.data != nullptr) {
    BRIGADE_RETURN_IF_ERROR(blas.Gemm({.dtype = input.dtype,
                                       .m = input.rank,
                                       .n = input.inputs,
                                       .k = input.rows,
                                       .a = In(scratch.dhidden, input.rank, true),
                                       .b = In(dropped, input.inputs),
                                       .c = {da.data, input.inputs},
                                       .accumulate = da.accumulate},
                                      stream));
  }
  if (dx == nullptr) return absl::OkStatus();
  // With dropout by way of its memory, where dropout(x) is no longer needed.
  BRIGADE_RETURN_IF_ERROR(blas.Gemm({.dtype = input.dtype,
                                     .m = input.rows,
                                     .n = input.inputs,
                                     .k = input.rank,
                                     .a = In(scratch.dhidden, input.rank),
                                     .b = In(input.a, input.inputs),
                                     .c = {Drops(input) ? scratch.x : dx, input.inputs},
                                     .accumulate = !Drops(input)},
                                    stream));
  if (!Drops(input)) return absl::OkStatus();
  return ForEachRun(input, 0, input.rows, [&](int64_t row, int64_t count, const DropoutMask& mask) {
    const int64_t offset = row * input.inputs * precision::SizeOf(input.dtype);
    return DropoutBackward(input.dtype, count * input.inputs, mask,
                           static_cast<const char*>(scratch.x) + offset,
                           {static_cast<char*>(dx) + offset, true}, stream);
  });
}

absl::Status LoraUp(const LoraInput& input, const void* hidden, void* y, Blas& blas,
                    device::Stream& stream) {
  return blas.Gemm({.dtype = input.dtype,
                    .m = input.rows,
                    .n = input.outputs,
                    .k = input.rank,
                    .a = In(hidden, input.rank),
                    .b = In(input.b, input.rank, true),
                    .c = {y, LeadingOf(input)},
                    .scale = input.scale,
                    .accumulate = true},
                   stream);
}

absl::Status LoraUpGradient(const LoraInput& input, const void* hidden, const void* dy, Gradient db,
                            Blas& blas, device::Stream& stream) {
  if (db.data == nullptr) return absl::OkStatus();
  return blas.Gemm({.dtype = input.dtype,
                    .m = input.outputs,
                    .n = input.rank,
                    .k = input.rows,
                    .a = In(dy, LeadingOf(input), true),
                    .b = In(hidden, input.rank),
                    .c = {db.data, input.rank},
                    .scale = input.scale,
                    .accumulate = db.accumulate},
                   stream);
}

absl::Status LoraUpBackward(const LoraInput& input, const void* hidden, const void* dy,
                            void* dhidden, Gradient db, Blas& blas, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(LoraUpGradient(input, hidden, dy, db, blas, stream));
  return blas.Gemm({.dtype = input.dtype,
                    .m = input.rows,
                    .n = input.rank,
                    .k = input.outputs,
                    .a = In(dy, LeadingOf(input)),
                    .b = In(input.b, input.rank),
                    .c = {dhidden, input.rank},
                    .scale = input.scale},
                   stream);
}

}  // namespace brigade::nn
