#include "brigade/nn/lora.h"

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

// Calls drop(elements before, elements, mask) for each run of rows.
template <typename Drop>
absl::Status ForEachRun(const LoraInput& input, const Drop& drop) {
  if (input.runs.empty()) return drop(0, input.rows * input.inputs, input.dropout);
  for (const RowRun& run : input.runs) {
    DropoutMask mask = input.dropout;
    mask.first_element += run.global * input.inputs;
    BRIGADE_RETURN_IF_ERROR(drop(run.local * input.inputs, run.count * input.inputs, mask));
  }
  return absl::OkStatus();
}

// hidden = dropout(x) a^T; gives dropout(x).
absl::StatusOr<const void*> Down(const LoraInput& input, const LoraScratch& scratch, Blas& blas,
                                 device::Stream& stream) {
  const void* x = input.x;
  if (Drops(input)) {
    BRIGADE_RETURN_IF_ERROR(
        ForEachRun(input, [&](int64_t first, int64_t size, const DropoutMask& mask) {
          const int64_t offset = first * precision::SizeOf(input.dtype);
          return Dropout(input.dtype, size, mask, static_cast<const char*>(input.x) + offset,
                         nullptr, static_cast<char*>(scratch.x) + offset, stream);
        }));
    x = scratch.x;
  }
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

}  // namespace

absl::Status Lora(const LoraInput& input, const LoraScratch& scratch, void* y, Blas& blas,
                  device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Down(input, scratch, blas, stream).status());
  return LoraUp(input, scratch.hidden, y, blas, stream);
}

absl::Status LoraBackward(const LoraInput& input, const LoraScratch& scratch, const void* dy,
                          void* dx, Gradient da, Gradient db, Blas& blas, device::Stream& stream) {
  BRIGADE_ASSIGN_OR_RETURN(const void* const x, Down(input, scratch, blas, stream));
  BRIGADE_RETURN_IF_ERROR(
      LoraUpBackward(input, scratch.hidden, dy, scratch.dhidden, db, blas, stream));
  if (da.data != nullptr) {
    BRIGADE_RETURN_IF_ERROR(blas.Gemm({.dtype = input.dtype,
                                       .m = input.rank,
                                       .n = input.inputs,
                                       .k = input.rows,
                                       .a = In(scratch.dhidden, input.rank, true),
                                       .b = In(x, input.inputs),
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
  return ForEachRun(input, [&](int64_t first, int64_t size, const DropoutMask& mask) {
    const int64_t offset = first * precision::SizeOf(input.dtype);
    return DropoutBackward(input.dtype, size, mask, static_cast<const char*>(scratch.x) + offset,
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

absl::Status LoraUpBackward(const LoraInput& input, const void* hidden, const void* dy,
                            void* dhidden, Gradient db, Blas& blas, device::Stream& stream) {
  if (db.data != nullptr) {
    BRIGADE_RETURN_IF_ERROR(blas.Gemm({.dtype = input.dtype,
                                       .m = input.outputs,
                                       .n = input.rank,
                                       .k = input.rows,
                                       .a = In(dy, LeadingOf(input), true),
                                       .b = In(hidden, input.rank),
                                       .c = {db.data, input.rank},
                                       .scale = input.scale,
                                       .accumulate = db.accumulate},
                                      stream));
  }
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
