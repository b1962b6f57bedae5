#include "brigade/collectives/hierarchical/hierarchical.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/check_collective.h"
#include "brigade/collectives/engines/workspace.h"
#include "brigade/collectives/tuning/nodes.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

// Vectors stay whole, and shares of 16-bit types begin at whole cache lines.
constexpr int64_t kUnit = 64;

ReduceOptions By(Algorithm algorithm, ReduceOptions options) {
  options.algorithm = algorithm;
  return options;
}

char* Advance(const void* array, int64_t elements, precision::DType dtype) {
  return const_cast<char*>(static_cast<const char*>(array)) + elements * precision::SizeOf(dtype);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Hierarchical>> Hierarchical::Create(
    Communicator& world, int64_t node, const HierarchicalOptions& options,
    device::Context& context) {
  BRIGADE_ASSIGN_OR_RETURN(auto nodes, FindNodes(world, node));
  const size_t first_size = nodes.ranks[0].size();
  std::vector<int> slices(static_cast<size_t>(world.size()));
  for (size_t n = 0; n < nodes.ranks.size(); ++n) {
    const std::vector<int>& ranks = nodes.ranks[n];
    if (ranks.size() != first_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("nodes of one size are needed: that of rank 0 has ", first_size,
                       " ranks, that of rank ", ranks[0], " has ", ranks.size()));
    }
    for (size_t place = 0; place < ranks.size(); ++place) {
      slices[static_cast<size_t>(ranks[place])] = static_cast<int>(place * nodes.ranks.size() + n);
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(auto inside, world.Split(nodes.node, nodes.place));
  BRIGADE_ASSIGN_OR_RETURN(auto between, world.Split(nodes.place, nodes.node));
  BRIGADE_ASSIGN_OR_RETURN(auto last, context.CreateEvent("hierarchical"));
  return std::unique_ptr<Hierarchical>(new Hierarchical(
      options, std::move(slices), std::move(inside), std::move(between), std::move(last), context));
}

Hierarchical::Hierarchical(const HierarchicalOptions& options, std::vector<int> slices,
                           std::unique_ptr<Communicator> inside,
                           std::unique_ptr<Communicator> between,
                           std::unique_ptr<device::Event> last, device::Context& context)
    : options_(options),
      slices_(std::move(slices)),
      inside_(std::move(inside)),
      between_(std::move(between)),
      context_(context),
      order_(std::move(last)) {}

int Hierarchical::slice() const { return inside_->rank() * between_->size() + between_->rank(); }

absl::Status Hierarchical::Check(CollectiveKind kind, const void* input, void* output,
                                 int64_t count, precision::DType dtype, kernels::ReduceOp op,
                                 device::Stream& stream) const {
  return CheckCollective(
      {.signature = {kind, Algorithm::kDirect, dtype, op, count}, .input = input, .output = output},
      slice(), static_cast<int>(slices_.size()), context_.device(), stream);
}

absl::Status Hierarchical::Run(device::Stream& stream, absl::FunctionRef<absl::Status()> call) {
  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  absl::Status status = call();
  if (status.ok()) status = order_.End(stream);
  for (Communicator* const level : {inside_.get(), between_.get()}) {
    if (level->status().ok()) continue;
    inside_->Abort(level->status());
    between_->Abort(level->status());
    break;
  }
  return status;
}

absl::Status Hierarchical::AllReduce(const void* input, void* output, int64_t count,
                                     const ReduceOptions& options, device::Stream& stream) {
  const precision::DType dtype = options.dtype;
  BRIGADE_RETURN_IF_ERROR(
      Check(CollectiveKind::kAllReduce, input, output, count, dtype, options.op, stream));
  const ReduceOptions inside = By(options_.inside, options);
  const ReduceOptions between = By(options_.between, options);
  return Run(stream, [&]() -> absl::Status {
    const int64_t part = count / (inside_->size() * kUnit) * kUnit;
    char* const share = Advance(output, inside_->rank() * part, dtype);
    BRIGADE_RETURN_IF_ERROR(inside_->ReduceScatter(input, share, part, inside, stream));
    BRIGADE_RETURN_IF_ERROR(between_->AllReduce(share, share, part, between, stream));
    BRIGADE_RETURN_IF_ERROR(
        inside_->AllGather(share, output, part, {dtype, options_.inside}, stream));
    const int64_t done = part * inside_->size();
    if (done == count) return absl::OkStatus();
    char* const rest = Advance(output, done, dtype);
    BRIGADE_RETURN_IF_ERROR(
        inside_->AllReduce(Advance(input, done, dtype), rest, count - done, inside, stream));
    return between_->AllReduce(rest, rest, count - done, between, stream);
  });
}

absl::Status Hierarchical::ReduceScatter(const void* input, void* output, int64_t count,
                                         const ReduceOptions& options, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(CollectiveKind::kReduceScatter, input, output, count, options.dtype,
                                options.op, stream));
  const ReduceOptions inside = By(options_.inside, options);
  const ReduceOptions between = By(options_.between, options);
  return Run(stream, [&]() -> absl::Status {
    const int64_t part = between_->size() * count;
    BRIGADE_RETURN_IF_ERROR(Provide(part * precision::SizeOf(options.dtype), "hierarchical scratch",
                                    context_, scratch_));
    BRIGADE_RETURN_IF_ERROR(inside_->ReduceScatter(input, scratch_.data(), part, inside, stream));
    return between_->ReduceScatter(scratch_.data(), output, count, between, stream);
  });
}

absl::Status Hierarchical::AllGather(const void* input, void* output, int64_t count,
                                     const MoveOptions& options, device::Stream& stream) {
  const precision::DType dtype = options.dtype;
  BRIGADE_RETURN_IF_ERROR(Check(CollectiveKind::kAllGather, input, output, count, dtype,
                                kernels::ReduceOp::kSum, stream));
  return Run(stream, [&]() -> absl::Status {
    const int64_t part = between_->size() * count;
    char* const gathered = Advance(output, inside_->rank() * part, dtype);
    BRIGADE_RETURN_IF_ERROR(
        between_->AllGather(input, gathered, count, {dtype, options_.between}, stream));
    return inside_->AllGather(gathered, output, part, {dtype, options_.inside}, stream);
  });
}

}  // namespace brigade::collectives
