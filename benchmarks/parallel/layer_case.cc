#include "brigade/benchmarks/parallel/layer_case.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/linear.h"
#include "brigade/parallel/tensor/linear.h"

namespace brigade::benchmarks {
namespace {

using collectives::CollectiveSignature;
using parallel::ShardSums;

constexpr precision::DType kFloat = precision::DType::kFloat32;

parallel::ShardSumOptions SumOptions(const LayerShape& shape, int rank, bool exchanges,
                                     bool overlap) {
  return {.shards = exchanges ? parallel::TensorShards{shape.ranks, shape.ranks, rank}
                              : parallel::TensorShards{},
          .dtype = kFloat,
          .part = shape.part,
          .elements = shape.rows * shape.width,
          .pieces = shape.pieces,
          .rows = shape.rows,
          .overlap = overlap};
}

// Products that wait in proportion to their operations.
class WaitingBlas final : public nn::Blas {
 public:
  explicit WaitingBlas(double operations_per_second)
      : operations_per_second_(operations_per_second) {}

 private:
  device::Access Workspace(const nn::GemmArguments& /*arguments*/) const override {
    return device::Writes(nullptr, 0);
  }
  absl::Status Enqueue(const nn::GemmArguments& arguments, const device::Operation& operation,
                       device::Stream& stream) override {
    const double operations = 2.0 * static_cast<double>(arguments.m) *
                              static_cast<double>(arguments.n) * static_cast<double>(arguments.k);
    const std::chrono::duration<double> time(operations / operations_per_second_);
    return stream.Enqueue(operation, [time](device::ThreadPool&) {
      std::this_thread::sleep_for(time);
      return absl::OkStatus();
    });
  }

  const double operations_per_second_;
};

// A signature of each piece.
template <typename Signature>
std::vector<CollectiveSignature> OfPieces(const LayerShape& shape, Signature signature) {
  const parallel::ShardSumOptions options = SumOptions(shape, 0, true, false);
  const parallel::RowPieces pieces = {shape.rows, shape.pieces, shape.part, options.shards};
  std::vector<CollectiveSignature> calls;
  for (int p = 0; p < pieces.count(); ++p) {
    calls.push_back(signature(options, pieces.Piece(p).count * shape.width));
  }
  return calls;
}

}  // namespace

bool LayerShape::gathers() const {
  return part == parallel::SumPart::kOwn && pass != LayerPass::kRowForward;
}

bool LayerShape::sums() const {
  return pass == LayerPass::kRowForward || pass == LayerPass::kColumnBackward;
}

int LayerShape::products() const {
  return pass == LayerPass::kRowBackward || pass == LayerPass::kColumnBackward ? 2 : 1;
}

std::string ToString(const LayerShape& shape) {
  constexpr absl::string_view kNames[] = {"column_forward", "row_forward", "row_backward",
                                          "column_backward"};
  return absl::StrCat(kNames[static_cast<size_t>(shape.pass)],
                      shape.part == parallel::SumPart::kOwn ? "_own_rows" : "_all_rows");
}

double ShortestSeconds(const LayerShape& shape, double products, double gather, double sum) {
  const double pieces = shape.pieces, product = products / shape.products() / pieces;
  // A product of gathered rows waits for its piece; the gradient of the weight for all of them, and
  // that of the inputs of a column for none.
  const bool waits_for_pieces = shape.gathers() && shape.pass != LayerPass::kColumnBackward;
  double compute = 0, link = gather;
  for (int p = 0; p < shape.pieces; ++p) {
    if (waits_for_pieces) compute = std::max(compute, gather * (p + 1) / pieces);
    compute += product;
    if (shape.sums()) link = std::max(link, compute) + sum / pieces;
  }
  if (shape.products() == 2) compute = std::max(compute, gather) + product * pieces;
  return std::max(compute, link);
}

std::vector<CollectiveSignature> LayerCase::Gathers(const LayerShape& shape) {
  return shape.gathers() ? OfPieces(shape, ShardSums::SignatureOfGather)
                         : std::vector<CollectiveSignature>();
}

std::vector<CollectiveSignature> LayerCase::Sums(const LayerShape& shape) {
  return shape.sums() ? OfPieces(shape, ShardSums::SignatureOf)
                      : std::vector<CollectiveSignature>();
}

absl::StatusOr<std::unique_ptr<LayerCase>> LayerCase::Create(const LayerShape& shape,
                                                             bool exchanges, bool overlap,
                                                             ParallelRank& rank) {
  if (shape.rows % (shape.ranks * shape.pieces) != 0 || 4 * shape.width % shape.ranks != 0) {
    return absl::InvalidArgumentError("ranks and pieces must divide the rows, ranks the width");
  }
  std::unique_ptr<LayerCase> made(new LayerCase(shape, exchanges, rank));
  const int64_t rows = shape.rows * shape.width, cut = 4 * rows / shape.ranks;
  const int64_t weight = 4 * shape.width * shape.width / shape.ranks;
  const double scale = std::sqrt(1.0 / static_cast<double>(shape.width));
  for (const auto& [buffer, elements, of] :
       {std::tuple{&made->own_, rows, 1.0}, std::tuple{&made->all_, rows, 1.0},
        std::tuple{&made->cut_, cut, 1.0}, std::tuple{&made->out_, rows, 1.0},
        std::tuple{&made->dcut_, cut, 1.0}, std::tuple{&made->weight_, weight, scale},
        std::tuple{&made->dweight_, weight, 1.0}}) {
    BRIGADE_ASSIGN_OR_RETURN(*buffer, rank.Noise(elements, kFloat, of));
  }
  BRIGADE_ASSIGN_OR_RETURN(
      made->workspace_,
      nn::Workspace::Create(rank.context(), kFloat,
                            {.rows = shape.rows, .sums = 4 * shape.width, .width = shape.width}));
  if (shape.product_seconds > 0) {
    const auto operations = static_cast<double>(2 * shape.rows * weight);
    made->blas_ = std::make_unique<WaitingBlas>(operations / shape.product_seconds);
  } else {
    BRIGADE_ASSIGN_OR_RETURN(made->blas_, nn::Blas::Create(rank.context(), 0));
  }
  BRIGADE_ASSIGN_OR_RETURN(
      made->sums_, ShardSums::Create(SumOptions(shape, rank.rank(), exchanges, overlap),
                                     exchanges ? &rank.communicator() : nullptr, rank.context()));
  return made;
}

absl::Status LayerCase::Run() {
  device::Stream& stream = rank_.stream();
  const int64_t cut = 4 * shape_.width / shape_.ranks;
  const void* rows = own_.data();
  if (shape_.gathers()) {
    if (exchanges_) {
      BRIGADE_RETURN_IF_ERROR(
          sums_->GatherRows(own_.data(), all_.data(), shape_.rows, shape_.width, stream));
    }
    rows = all_.data();
  }
  const nn::LinearInput column = {kFloat, rows, weight_.data(), shape_.rows, shape_.width, cut};
  const nn::LinearInput row = {kFloat, cut_.data(), weight_.data(), shape_.rows, cut, shape_.width};
  switch (shape_.pass) {
    case LayerPass::kColumnForward:
      return parallel::ColumnLinear(column, nullptr, cut_.data(), *sums_, *blas_, stream);
    case LayerPass::kRowForward:
      return parallel::RowLinear(row, out_.data(), *sums_, *blas_, stream);
    case LayerPass::kRowBackward:
      return parallel::RowLinearBackward(row, rows, dcut_.data(), {dweight_.data()}, *sums_, *blas_,
                                         workspace_, stream);
    case LayerPass::kColumnBackward:
      return parallel::ColumnLinearBackward(column, dcut_.data(), out_.data(), {dweight_.data()},
                                            {}, *sums_, *blas_, workspace_, stream);
  }
  return absl::OkStatus();
}

}  // namespace brigade::benchmarks
