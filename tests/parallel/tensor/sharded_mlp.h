#ifndef BRIGADE_TESTS_PARALLEL_TENSOR_SHARDED_MLP_H_
#define BRIGADE_TESTS_PARALLEL_TENSOR_SHARDED_MLP_H_

// Two layers with GELU between, cut by columns and by rows, on any number of ranks.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "brigade/nn/pointwise.h"
#include "brigade/parallel/tensor/exchange.h"
#include "brigade/parallel/tensor/linear.h"
#include "brigade/parallel/tensor/row_pieces.h"
#include "brigade/parallel/tensor/shard_sums.h"
#include "brigade/tests/parallel/tensor/tensor_lab.h"
#include "brigade/tests/parallel/tensor/test_peer.h"
#include "gtest/gtest.h"

namespace brigade::parallel {

// From x [rows, inputs] to y [rows, outputs], and back from dy.
struct Mlp {
  int64_t rows, inputs, hidden, outputs;
  bool gelu = true;

  Shard expand() const { return {.shape = {hidden, inputs}, .axis = 0}; }
  Shard expand_bias() const { return {.shape = {hidden}, .axis = 0}; }
  Shard contract() const { return {.shape = {outputs, hidden}, .axis = 1}; }
};

template <typename T>
struct Values {
  std::vector<T> x, expand, bias, contract, dy;
};

template <typename T>
struct Results {
  std::vector<T> y, dx, dexpand, dbias, dcontract;
  // By all ranks, in all calls.
  int64_t sent_bytes = 0;
};

struct How {
  SumWire wire = SumWire::kFloat32;
  // kOwn: ranks have rows of x and dy, and gather them.
  SumPart part = SumPart::kAll;
  int pieces = 1;
  bool overlap = false;
  device::RandomDelay random_delay = {};
  device::RaceChecker* race_checker = nullptr;
  // Then there are no results.
  std::optional<internal::WaitPoint> omitted = {};
};

template <typename T>
Values<T> RandomValues(const Mlp& mlp) {
  return {Noise<T>(mlp.rows * mlp.inputs, 1), Noise<T>(mlp.hidden * mlp.inputs, 2),
          Noise<T>(mlp.hidden, 3), Noise<T>(mlp.outputs * mlp.hidden, 4),
          Noise<T>(mlp.rows * mlp.outputs, 5)};
}

template <typename T>
Results<T> RunMlp(const Mlp& mlp, const Values<T>& values, int count, int ranks,
                  const How& how = {}) {
  Results<T> whole = {std::vector<T>(static_cast<size_t>(mlp.rows * mlp.outputs)),
                      std::vector<T>(values.x.size()), std::vector<T>(values.expand.size()),
                      std::vector<T>(values.bias.size()), std::vector<T>(values.contract.size())};
  std::atomic<int64_t> sent_bytes = 0;
  const collectives::RanksOptions options = {
      .size = ranks, .random_delay = how.random_delay, .race_checker = how.race_checker};
  OnTensorRanks(count, options, [&](TensorLab& lab) {
    constexpr precision::DType kType = precision::kDType<T>;
    device::Stream& stream = lab.stream();
    const int local = lab.shards().local();
    auto sums = ShardSums::Create({.shards = lab.shards(),
                                   .dtype = kType,
                                   .wire = how.wire,
                                   .part = how.part,
                                   .elements = mlp.rows * std::max(mlp.inputs, mlp.outputs),
                                   .pieces = how.pieces,
                                   .rows = mlp.rows,
                                   .overlap = how.overlap},
                                  lab.self().communicator.get(), *lab.self().context)
                    .value();
    if (how.omitted.has_value()) ShardSumsTestPeer::OmitWait(*sums, *how.omitted);
    const RowPieces pieces = sums->PiecesOf(mlp.rows);
    const auto own_x = lab.CutRows(pieces, mlp.inputs, values.x);
    const auto own_dy = lab.CutRows(pieces, mlp.outputs, values.dy);
    const auto expand = lab.Cut(mlp.expand(), values.expand);
    const auto bias = lab.Cut(mlp.expand_bias(), values.bias);
    const auto contract = lab.Cut(mlp.contract(), values.contract);
    const int64_t hidden = mlp.hidden / count, inner = local * mlp.rows * hidden;
    const auto h = lab.Raw<T>(inner), act = lab.Raw<T>(inner), dh = lab.Raw<T>(inner);
    const auto computed_x = lab.Raw<T>(static_cast<int64_t>(own_x.size()));
    const auto x = lab.Raw<T>(mlp.rows * mlp.inputs), dy = lab.Raw<T>(mlp.rows * mlp.outputs);
    const auto y = lab.Raw<T>(pieces.own_rows() * mlp.outputs);
    const auto dx = lab.Raw<T>(pieces.own_rows() * mlp.inputs);
    const auto dexpand = lab.Raw<T>(static_cast<int64_t>(expand.size()));
    const auto dbias = lab.Raw<T>(static_cast<int64_t>(bias.size()));
    const auto dcontract = lab.Raw<T>(static_cast<int64_t>(contract.size()));
    const bool gathers = how.part == SumPart::kOwn && ranks > 1;
    const nn::LinearInput first = {kType, x.data(), expand.data(), mlp.rows, mlp.inputs, hidden};
    const nn::LinearInput second = {
        kType, mlp.gelu ? act.data() : h.data(), contract.data(), mlp.rows, hidden, mlp.outputs};
    const nn::MatrixShape shape = {kType, local * mlp.rows, hidden};

    const int64_t sent_before = lab.sent_bytes();
    absl::Status status;
    // Rows are made on the stream, as a norm would.
    const auto copy = [&](absl::Span<T> to, absl::Span<const T> from) {
      status.Update(stream.Copy(to.data(), from.data(), from.size() * sizeof(T)));
    };
    copy(gathers ? computed_x : x, own_x);
    const auto gather_x = [&] {
      if (!gathers) return;
      status.Update(sums->GatherRows(computed_x.data(), x.data(), mlp.rows, mlp.inputs, stream));
    };
    gather_x();
    status.Update(ColumnLinear(first, bias.data(), h.data(), *sums, lab.blas(), stream));
    if (mlp.gelu) status.Update(nn::Gelu(shape, h.data(), act.data(), stream));
    status.Update(RowLinear(second, y.data(), *sums, lab.blas(), stream));
    if (gathers) {
      // In their places.
      for (int p = 0; p < pieces.count(); ++p) {
        const RowRange own = pieces.Own(p);
        copy(dy.subspan(static_cast<size_t>(pieces.OwnAmongAll(p).first * mlp.outputs)),
             own_dy.subspan(static_cast<size_t>(own.first * mlp.outputs),
                            static_cast<size_t>(own.count * mlp.outputs)));
      }
      status.Update(sums->GatherRows(nullptr, dy.data(), mlp.rows, mlp.outputs, stream));
    } else {
      copy(dy, own_dy);
    }
    status.Update(RowLinearBackward(second, dy.data(), dh.data(), {dcontract.data()}, *sums,
                                    lab.blas(), lab.workspace(), stream));
    if (mlp.gelu) status.Update(nn::GeluBackward(shape, h.data(), dh.data(), stream));
    gather_x();
    status.Update(ColumnLinearBackward(first, dh.data(), dx.data(), {dexpand.data()},
                                       {dbias.data()}, *sums, lab.blas(), lab.workspace(), stream));
    // What is next overwrites what the sums were made of, and reads them.
    copy(dh, act);
    const auto read_dx = lab.Raw<T>(static_cast<int64_t>(dx.size()));
    copy(read_dx, dx);
    status.Update(lab.self().communicator->Synchronize(stream));
    if (how.omitted.has_value()) {
      // The checker has the report.
      stream.Reset().IgnoreError();
      return;
    }
    ASSERT_OK(status);
    // Its calls are over on all ranks, so that all has been counted.
    lab.self().AwaitOthers();
    sent_bytes += lab.sent_bytes() - sent_before;
    lab.JoinRows<T>(pieces, mlp.outputs, y, whole.y);
    lab.JoinRows<T>(pieces, mlp.inputs, read_dx, whole.dx);
    lab.Join<T>(mlp.expand(), dexpand, whole.dexpand);
    lab.Join<T>(mlp.expand_bias(), dbias, whole.dbias);
    lab.Join<T>(mlp.contract(), dcontract, whole.dcontract);
  });
  whole.sent_bytes = sent_bytes;
  return whole;
}

template <typename T>
void ExpectSameBits(const Results<T>& a, const Results<T>& b) {
  EXPECT_TRUE(SameBits(a.y, b.y)) << "y";
  EXPECT_TRUE(SameBits(a.dx, b.dx)) << "dx";
  EXPECT_TRUE(SameBits(a.dexpand, b.dexpand)) << "dexpand";
  EXPECT_TRUE(SameBits(a.dbias, b.dbias)) << "dbias";
  EXPECT_TRUE(SameBits(a.dcontract, b.dcontract)) << "dcontract";
}

}  // namespace brigade::parallel

#endif  // BRIGADE_TESTS_PARALLEL_TENSOR_SHARDED_MLP_H_
