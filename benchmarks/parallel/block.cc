#include "brigade/benchmarks/parallel/block.h"

#include <cmath>
#include <utility>

#include "brigade/device/status_macros.h"
#include "brigade/parallel/tensor/linear.h"

namespace brigade::benchmarks {
namespace {

using collectives::CollectiveSignature;
using parallel::ShardSums;

// Gradients that are summed over ranks under sequence parallelism: places of the parameters, in
// widths.
constexpr int64_t kNorm1 = 0, kProjectionBias = 2, kNorm2 = 3, kContractBias = 5, kRowGradients = 6;

parallel::TensorShards ShardsOf(const BlockShape& shape, int rank, bool exchanges) {
  return exchanges ? parallel::TensorShards{shape.ranks, shape.ranks, rank}
                   : parallel::TensorShards{};
}

parallel::ShardSumOptions SumOptions(const BlockShape& shape, int rank, bool exchanges) {
  return {.shards = ShardsOf(shape, rank, exchanges),
          .dtype = shape.dtype,
          .part = shape.sequence_parallel ? parallel::SumPart::kOwn : parallel::SumPart::kAll,
          .elements = shape.rows() * shape.width,
          .pieces = shape.pieces,
          .rows = shape.rows(),
          .overlap = shape.overlap};
}

parallel::RowPieces PiecesOf(const BlockShape& shape, const parallel::ShardSumOptions& sum) {
  return {shape.rows(), sum.pieces, sum.part, sum.shards};
}

parallel::RowGradientOptions RowGradientsOf(const BlockShape& shape,
                                            const parallel::ShardSumOptions& sum) {
  return {.shards = sum.shards,
          .dtype = shape.dtype,
          .elements = kRowGradients * shape.width,
          .pieces = PiecesOf(shape, sum).count()};
}

}  // namespace

double BlockShape::ProductOperations() const {
  // Each of 12 width^2 weights is multiplied with each row three times; attention's scores and
  // sums are two products forward and five backward, of half of the pairs of positions.
  const double linear = 6.0 * 12 * static_cast<double>(width * width * rows());
  const double pairs = static_cast<double>(batch * context) * static_cast<double>(context + 1) / 2;
  return (linear + 14 * pairs * static_cast<double>(width)) / ranks;
}

std::vector<CollectiveSignature> Block::Collectives(const BlockShape& shape, int rank) {
  const parallel::ShardSumOptions sum = SumOptions(shape, rank, true);
  const parallel::RowPieces pieces = PiecesOf(shape, sum);
  std::vector<CollectiveSignature> calls;
  // Two sums in each pass. Rows are gathered before two products of the forward pass, and again in
  // the backward pass, which gathers the gradients of two outputs too.
  for (int p = 0; p < pieces.count(); ++p) {
    const int64_t elements = pieces.Piece(p).count * shape.width;
    calls.insert(calls.end(), 4, ShardSums::SignatureOf(sum, elements));
    if (shape.sequence_parallel) {
      calls.insert(calls.end(), 6, ShardSums::SignatureOfGather(sum, elements));
    }
  }
  if (shape.sequence_parallel) {
    const parallel::RowGradientOptions rows = RowGradientsOf(shape, sum);
    calls.push_back(parallel::RowGradients::SignatureOf(rows, rows.elements));
  }
  return calls;
}

Block::Block(const BlockShape& shape, bool exchanges, ParallelRank& rank)
    : shape_(shape),
      exchanges_(exchanges),
      rank_(rank),
      attention_{shape.dtype, shape.batch, shape.context, shape.heads / shape.ranks,
                 shape.of_rank(shape.width)} {}

absl::StatusOr<std::unique_ptr<Block>> Block::Create(const BlockShape& shape, bool exchanges,
                                                     ParallelRank& rank) {
  if (shape.heads % shape.ranks != 0 || shape.width % shape.heads != 0 ||
      shape.own_rows() * (shape.sequence_parallel ? shape.ranks : 1) != shape.rows()) {
    return absl::InvalidArgumentError("the ranks must divide heads and rows, heads the width");
  }
  std::unique_ptr<Block> made(new Block(shape, exchanges, rank));
  const int64_t width = shape.width, rows = shape.rows(), own = shape.own_rows();
  const int64_t cut = shape.of_rank(width);
  const double of_width = std::sqrt(1.0 / static_cast<double>(width)), of_mlp = of_width / 2;
  struct Array {
    const char* name;
    int64_t elements;
    double scale;
  };
  const Array arrays[] = {
      {"x", own * width, 1},           {"norm1", own * width, 1},
      {"qkv", rows * 3 * cut, 1},      {"attention", rows * cut, 1},
      {"middle", rows * width, 1},     {"norm2", own * width, 1},
      {"expanded", rows * 4 * cut, 1}, {"gelu", rows * 4 * cut, 1},
      {"output", rows * width, 1},     {"gathered", rows * width, 1},
      {"dx", own * width, 1},          {"dnorm", rows * width, 1},
      {"dqkv", rows * 3 * cut, 1},     {"dattention", rows * cut, 1},
      {"dmlp", rows * 4 * cut, 1},     {"norm1_weight", width, 1},
      {"norm1_bias", width, 1},        {"qkv_weight", 3 * cut * width, of_width},
      {"qkv_bias", 3 * cut, 1},        {"projection_weight", width * cut, of_width},
      {"projection_bias", width, 1},   {"norm2_weight", width, 1},
      {"norm2_bias", width, 1},        {"expand_weight", 4 * cut * width, of_width},
      {"expand_bias", 4 * cut, 1},     {"contract_weight", width * 4 * cut, of_mlp},
      {"contract_bias", width, 1},
  };
  const auto add = [&](const std::string& name, int64_t elements, double scale,
                       precision::DType dtype) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(made->arrays_[name], rank.Noise(elements, dtype, scale));
    return absl::OkStatus();
  };
  for (const auto& [name, elements, scale] : arrays) {
    BRIGADE_RETURN_IF_ERROR(add(name, elements, scale, shape.dtype));
    const std::string text = name;
    if (text.ends_with("_weight") || text.ends_with("_bias")) {
      BRIGADE_RETURN_IF_ERROR(add("d" + text, elements, 0, shape.dtype));
    }
  }
  constexpr precision::DType kFloat = precision::DType::kFloat32;
  for (const char* const name :
       {"norm1_mean", "norm1_inverse_deviation", "norm2_mean", "norm2_inverse_deviation"}) {
    BRIGADE_RETURN_IF_ERROR(add(name, own, 0, kFloat));
  }
  BRIGADE_RETURN_IF_ERROR(add("log_sum_exp", made->attention_.statistics(), 0, kFloat));
  BRIGADE_RETURN_IF_ERROR(add(
      "attention_workspace",
      nn::AttentionWorkspaceBytes(made->attention_, rank.context().device()) / 4 + 1, 0, kFloat));

  BRIGADE_ASSIGN_OR_RETURN(
      made->workspace_, nn::Workspace::Create(rank.context(), shape.dtype,
                                              {.rows = rows, .sums = 4 * width, .width = width}));
  BRIGADE_ASSIGN_OR_RETURN(
      made->blas_, nn::Blas::Create(rank.context(),
                                    nn::Blas::WorkspaceBytes(shape.dtype, rows, 4 * cut, width)));
  const parallel::ShardSumOptions sum = SumOptions(shape, rank.rank(), exchanges);
  collectives::Communicator* const ranks = exchanges ? &rank.communicator() : nullptr;
  BRIGADE_ASSIGN_OR_RETURN(made->sums_, ShardSums::Create(sum, ranks, rank.context()));
  if (shape.sequence_parallel) {
    BRIGADE_ASSIGN_OR_RETURN(
        made->row_gradients_,
        parallel::RowGradients::Create(RowGradientsOf(shape, sum), ranks, rank.context()));
  }
  return made;
}

absl::StatusOr<const void*> Block::GatherRows(const void* own) {
  if (!shape_.sequence_parallel) return own;
  void* const all = at("gathered");
  if (exchanges_) {
    BRIGADE_RETURN_IF_ERROR(
        sums_->GatherRows(own, all, shape_.rows(), shape_.width, rank_.stream()));
  }
  return all;
}

nn::LayerNormInput Block::NormOf(const char* x, const char* name) {
  const std::string prefix = name;
  return {shape_.dtype,
          at(x),
          at(prefix + "_weight"),
          at(prefix + "_mean"),
          at(prefix + "_inverse_deviation"),
          shape_.own_rows(),
          shape_.width};
}

nn::LinearInput Block::LinearOf(const void* x, const char* weight, int64_t inputs,
                                int64_t outputs) {
  return {shape_.dtype, x, at(weight), shape_.rows(), inputs, outputs};
}

absl::Status Block::Forward() {
  device::Stream& stream = rank_.stream();
  const int64_t width = shape_.width, cut = shape_.of_rank(width);
  BRIGADE_RETURN_IF_ERROR(
      nn::LayerNorm(NormOf("x", "norm1"), at("norm1_bias"), at("norm1"), stream));
  BRIGADE_ASSIGN_OR_RETURN(const void* const norm1, GatherRows(at("norm1")));
  BRIGADE_RETURN_IF_ERROR(parallel::ColumnLinear(LinearOf(norm1, "qkv_weight", width, 3 * cut),
                                                 at("qkv_bias"), at("qkv"), *sums_, *blas_,
                                                 stream));
  BRIGADE_RETURN_IF_ERROR(
      nn::Attention(attention_, at("qkv"), at("attention"), at("log_sum_exp"), stream));
  BRIGADE_RETURN_IF_ERROR(
      parallel::RowLinear(LinearOf(at("attention"), "projection_weight", cut, width), at("middle"),
                          *sums_, *blas_, stream));
  BRIGADE_RETURN_IF_ERROR(
      nn::AddBias(OwnRows(), at("middle"), at("projection_bias"), at("x"), stream));

  BRIGADE_RETURN_IF_ERROR(
      nn::LayerNorm(NormOf("middle", "norm2"), at("norm2_bias"), at("norm2"), stream));
  BRIGADE_ASSIGN_OR_RETURN(const void* const norm2, GatherRows(at("norm2")));
  BRIGADE_RETURN_IF_ERROR(parallel::ColumnLinear(LinearOf(norm2, "expand_weight", width, 4 * cut),
                                                 nullptr, at("expanded"), *sums_, *blas_, stream));
  BRIGADE_RETURN_IF_ERROR(nn::AddBiasGelu({shape_.dtype, shape_.rows(), 4 * cut}, at("expanded"),
                                          at("expand_bias"), at("gelu"), stream));
  BRIGADE_RETURN_IF_ERROR(
      parallel::RowLinear(LinearOf(at("gelu"), "contract_weight", 4 * cut, width), at("output"),
                          *sums_, *blas_, stream));
  return nn::AddBias(OwnRows(), at("output"), at("contract_bias"), at("middle"), stream);
}

absl::Status Block::ForEachPiece(
    absl::FunctionRef<absl::Status(int piece, const parallel::RowRange& own)> visit) {
  if (row_gradients_ == nullptr) return visit(0, {0, shape_.own_rows()});
  const parallel::RowPieces pieces = PiecesOf(shape_, sums_->options());
  for (int p = 0; p < pieces.count(); ++p) {
    parallel::RowRange own = pieces.Own(p);
    // Alone it has but the rows of one rank.
    if (!exchanges_) own = {own.first / shape_.ranks, own.count / shape_.ranks};
    BRIGADE_RETURN_IF_ERROR(visit(p, own));
  }
  return absl::OkStatus();
}

nn::Gradient Block::RowGradientOf(const std::string& name, int piece, int64_t place) {
  if (row_gradients_ == nullptr) return GradientOf(name);
  return {row_gradients_->Block(piece, 0, place * shape_.width)};
}

// From "dnorm", into "dx", and the gradients of the norm's parameters.
absl::Status Block::NormBackward(const nn::LayerNormInput& input, const std::string& name,
                                 int64_t place) {
  return ForEachPiece([&](int piece, const parallel::RowRange& own) {
    const int64_t first = own.first * shape_.width * precision::SizeOf(shape_.dtype);
    nn::LayerNormInput part = input;
    part.rows = own.count;
    part.x = static_cast<const char*>(input.x) + first;
    part.mean = static_cast<float*>(input.mean) + own.first;
    part.inverse_deviation = static_cast<float*>(input.inverse_deviation) + own.first;
    return nn::LayerNormBackward(part, at("dnorm") + first, {at("dx") + first, true},
                                 RowGradientOf(name + "_weight", piece, place),
                                 RowGradientOf(name + "_bias", piece, place + 1), workspace_,
                                 rank_.stream());
  });
}

absl::Status Block::BiasBackward(const std::string& name, int64_t place) {
  return ForEachPiece([&](int piece, const parallel::RowRange& own) {
    const int64_t first = own.first * shape_.width * precision::SizeOf(shape_.dtype);
    return nn::BiasBackward({shape_.dtype, own.count, shape_.width}, at("dx") + first,
                            RowGradientOf(name, piece, place), workspace_, rank_.stream());
  });
}

absl::Status Block::Backward() {
  device::Stream& stream = rank_.stream();
  const int64_t width = shape_.width, cut = shape_.of_rank(width);
  BRIGADE_RETURN_IF_ERROR(BiasBackward("contract_bias", kContractBias));
  BRIGADE_ASSIGN_OR_RETURN(const void* const doutput, GatherRows(at("dx")));
  BRIGADE_RETURN_IF_ERROR(parallel::RowLinearBackward(
      LinearOf(at("gelu"), "contract_weight", 4 * cut, width), doutput, at("dmlp"),
      GradientOf("contract_weight"), *sums_, *blas_, workspace_, stream));
  BRIGADE_RETURN_IF_ERROR(
      nn::GeluBackward({shape_.dtype, shape_.rows(), 4 * cut}, at("expanded"), at("dmlp"), stream));
  BRIGADE_ASSIGN_OR_RETURN(const void* const norm2, GatherRows(at("norm2")));
  BRIGADE_RETURN_IF_ERROR(parallel::ColumnLinearBackward(
      LinearOf(norm2, "expand_weight", width, 4 * cut), at("dmlp"), at("dnorm"),
      GradientOf("expand_weight"), GradientOf("expand_bias"), *sums_, *blas_, workspace_, stream));
  BRIGADE_RETURN_IF_ERROR(NormBackward(NormOf("middle", "norm2"), "norm2", kNorm2));

  BRIGADE_RETURN_IF_ERROR(BiasBackward("projection_bias", kProjectionBias));
  BRIGADE_ASSIGN_OR_RETURN(const void* const dmiddle, GatherRows(at("dx")));
  BRIGADE_RETURN_IF_ERROR(parallel::RowLinearBackward(
      LinearOf(at("attention"), "projection_weight", cut, width), dmiddle, at("dattention"),
      GradientOf("projection_weight"), *sums_, *blas_, workspace_, stream));
  BRIGADE_RETURN_IF_ERROR(nn::AttentionBackward(attention_, at("qkv"), at("attention"),
                                                at("log_sum_exp"), at("dattention"),
                                                at("attention_workspace"), at("dqkv"), stream));
  BRIGADE_ASSIGN_OR_RETURN(const void* const norm1, GatherRows(at("norm1")));
  BRIGADE_RETURN_IF_ERROR(parallel::ColumnLinearBackward(
      LinearOf(norm1, "qkv_weight", width, 3 * cut), at("dqkv"), at("dnorm"),
      GradientOf("qkv_weight"), GradientOf("qkv_bias"), *sums_, *blas_, workspace_, stream));
  BRIGADE_RETURN_IF_ERROR(NormBackward(NormOf("x", "norm1"), "norm1", kNorm1));
  if (row_gradients_ == nullptr) return absl::OkStatus();
  std::vector<parallel::RowGradients::Target> targets;
  for (const char* const name : {"norm1_weight", "norm1_bias", "projection_bias", "norm2_weight",
                                 "norm2_bias", "contract_bias"}) {
    targets.push_back({static_cast<int64_t>(targets.size()) * width, width, GradientOf(name)});
  }
  return row_gradients_->Sum(targets, stream);
}

absl::Status Block::Run() {
  BRIGADE_RETURN_IF_ERROR(Forward());
  return Backward();
}

}  // namespace brigade::benchmarks
