// NCCL itself, with one rank: sums and a CUDA graph.

#include <cuda_runtime_api.h>

#include <vector>

#include "brigade/collectives/engines/nccl/nccl_engine.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/tests/collectives/ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::testing::Each;

constexpr int64_t kCount = 1000;
constexpr int64_t kBytes = kCount * sizeof(float);

class NcclGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device::ContextOptions options;
    options.device = device::Cuda();
    context_ = device::Context::Create(options).value();
    stream_ = context_->CreateStream("compute").value();
    auto group = ThreadGroup::Create({1}).value();
    NcclOptions nccl;
    nccl.api = LoadNccl().value();
    auto engine = CreateNcclEngine(nccl, group->Join(0, *context_).value(), *context_).value();
    communicator_ = Communicator::Create(std::move(engine), *context_).value();
    input_ = context_->Allocate(kBytes, device::Purpose::kGradients).value();
    output_ = context_->Allocate(kBytes, device::Purpose::kGradients).value();
    host_.assign(kCount, 1.0f);
    ASSERT_OK(stream_->Copy(input_.data(), host_.data(), kBytes));
    // Tests read it on streams of their own.
    ASSERT_OK(stream_->Synchronize());
  }

  absl::Status AllReduce(device::Stream& stream, Algorithm algorithm = Algorithm::kNative) {
    return communicator_->AllReduce(input_.data(), output_.data(), kCount, kFloat32, By(algorithm),
                                    stream);
  }

  void ExpectOnes() {
    host_.assign(kCount, 0.0f);
    ASSERT_OK(stream_->Copy(host_.data(), output_.data(), kBytes));
    ASSERT_OK(stream_->Synchronize());
    ASSERT_OK(communicator_->status());
    EXPECT_THAT(host_, Each(1.0f));
  }

  std::unique_ptr<device::Context> context_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<Communicator> communicator_;
  device::Buffer input_, output_;
  std::vector<float> host_;
};

TEST_F(NcclGpuTest, AddsWithEveryKindOfAlgorithmAlsoInRegisteredMemory) {
  const auto registration = communicator_->Register(input_.data(), kBytes);
  ASSERT_OK(registration);
  for (const Algorithm algorithm : {Algorithm::kNative, Algorithm::kDirect, Algorithm::kRing}) {
    ASSERT_OK(stream_->FillBytes(output_.data(), 0, kBytes));
    ASSERT_OK(AllReduce(*stream_, algorithm));
    ExpectOnes();
  }
  ASSERT_OK(communicator_->Barrier(*stream_));
  ASSERT_OK(stream_->Synchronize());
}

TEST_F(NcclGpuTest, RunsFromACudaGraph) {
  cudaStream_t raw = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking), cudaSuccess);
  auto stream = context_->BorrowStream(raw, "captured").value();
  ASSERT_OK(AllReduce(*stream));
  ASSERT_OK(stream->Synchronize());
  ASSERT_EQ(cudaStreamBeginCapture(raw, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_OK(AllReduce(*stream));
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(raw, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cudaMemsetAsync(output_.data(), 0, kBytes, raw), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(executable, raw), cudaSuccess);
    ASSERT_OK(stream->Synchronize());
    ExpectOnes();
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  communicator_.reset();
  stream.reset();
  EXPECT_EQ(cudaStreamDestroy(raw), cudaSuccess);
}

}  // namespace
}  // namespace brigade::collectives
