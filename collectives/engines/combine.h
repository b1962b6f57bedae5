#ifndef BRIGADE_COLLECTIVES_ENGINES_COMBINE_H_
#define BRIGADE_COLLECTIVES_ENGINES_COMBINE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/collectives/algorithms/program.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/stream.h"
#include "brigade/device/threads/thread_pool.h"

namespace brigade::collectives {

// What an instruction does with arrays that the caller reaches: writes the reduction of the
// sources, in their order, to the targets; or converts, where their types differ. Enqueues it on
// `stream`, with the errors of kernels/reduce/reduce.h, which says when it needs `partials`.
absl::Status Combine(const Instruction& instruction, const CollectiveSignature& signature,
                     absl::Span<const void* const> sources, absl::Span<void* const> targets,
                     void* partials, device::Stream& stream);

// The same at once, of `count` of the instruction's elements, in the calling thread and the pool's.
void CombineCpu(const Instruction& instruction, const CollectiveSignature& signature, int64_t count,
                absl::Span<const void* const> sources, absl::Span<void* const> targets,
                device::ThreadPool& pool);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_COMBINE_H_
