#include "brigade/collectives/engines/combine.h"

#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/cast/cast_pool.h"
#include "brigade/kernels/reduce/reduce.h"
#include "brigade/kernels/reduce/reduce_pool.h"

namespace brigade::collectives {

absl::Status Combine(const Instruction& instruction, const CollectiveSignature& signature,
                     absl::Span<const void* const> sources, absl::Span<void* const> targets,
                     void* partials, device::Stream& stream) {
  const precision::DType from = SourceType(instruction, signature);
  const precision::DType to = TargetType(instruction, signature);
  if (from == to) {
    return kernels::Reduce(sources, targets, instruction.count, {from, signature.op, partials},
                           stream);
  }
  const kernels::CastSegment segment = {sources[0], targets[0], instruction.count};
  return kernels::Cast(absl::MakeConstSpan(&segment, 1), {from, to}, stream);
}

void CombineCpu(const Instruction& instruction, const CollectiveSignature& signature, int64_t count,
                absl::Span<const void* const> sources, absl::Span<void* const> targets,
                device::ThreadPool& pool) {
  const precision::DType from = SourceType(instruction, signature);
  const precision::DType to = TargetType(instruction, signature);
  if (from == to) {
    kernels::ReduceCpu(sources, targets, count, from, signature.op, pool);
    return;
  }
  const kernels::PlannedSegment<kernels::CastSegment> segment = {{sources[0], targets[0], count},
                                                                 0};
  precision::VisitFloat(from, [&](auto source) {
    precision::VisitFloat(to, [&](auto target) {
      kernels::CastCpu<decltype(source), decltype(target)>(absl::MakeConstSpan(&segment, 1),
                                                           /*scale=*/nullptr, /*accumulate=*/false,
                                                           pool);
    });
  });
}

}  // namespace brigade::collectives
