#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "brigade/emulator/runtime/library.h"
#include "brigade/tests/emulator/runtime/kernels.h"
#include "brigade/tests/emulator/runtime/testing.h"

namespace brigade::emulator {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::SizeIs;

class GraphTest : public RuntimeTest {
 protected:
  cudaGraph_t Capture(const std::function<void(cudaStream_t)>& body) {
    cudaGraph_t graph = nullptr;
    EXPECT_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    body(stream_);
    EXPECT_CUDA(cudaStreamEndCapture(stream_, &graph));
    return graph;
  }

  // Destroys the graph.
  cudaGraphExec_t Instantiate(cudaGraph_t graph) {
    cudaGraphExec_t executable = nullptr;
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    return executable;
  }

  Stream stream_, other_;
  Log log_;
};

TEST_F(GraphTest, RunsWhatWasCapturedEachTimeItIsLaunched) {
  Ints data(64), copy(64);
  const auto executable = Instantiate(Capture([&](cudaStream_t stream) {
    int value = 1;
    EXPECT_CUDA(Add(data, 64, value, stream));
    value = 100;  // the launch has taken its arguments
    EXPECT_CUDA(cudaMemcpyAsync(copy, data, data.bytes(), cudaMemcpyDeviceToDevice, stream));
    EXPECT_CUDA(cudaMemsetAsync(data, 0, sizeof(int), stream));
  }));
  for (int i = 1; i <= 20; ++i) {
    ASSERT_CUDA(cudaGraphLaunch(executable, stream_));
    ASSERT_CUDA(cudaStreamSynchronize(stream_));
    const std::vector<int> values = copy.Values();
    EXPECT_EQ(values[0], 1);
    EXPECT_EQ(values[1], i);
  }
  EXPECT_CUDA(cudaGraphExecDestroy(executable));
}

TEST_F(GraphTest, AGraphIsInstantiatedSeveralTimes) {
  const cudaGraph_t graph = Capture([&](cudaStream_t s) { EXPECT_CUDA(log_.Append(s, "node")); });
  cudaGraphExec_t first = nullptr, second = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&first, graph, 0));
  ASSERT_CUDA(cudaGraphInstantiate(&second, graph, 0));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  ASSERT_CUDA(cudaGraphLaunch(first, stream_));
  ASSERT_CUDA(cudaGraphExecDestroy(first));  // it is on its way
  ASSERT_CUDA(cudaGraphLaunch(second, stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_THAT(log_.Take(), ElementsAre("node", "node"));
  ASSERT_CUDA(cudaGraphExecDestroy(second));
}

// start -> a1 -> a2 -> end in one stream, b1 -> b2 in another between start and end.
TEST_F(GraphTest, RunsIndependentNodesInOrdersThatDiffer) {
  Event forked, joined;
  const auto executable = Instantiate(Capture([&](cudaStream_t stream) {
    EXPECT_CUDA(log_.Append(stream, "start"));
    EXPECT_CUDA(cudaEventRecord(forked, stream));
    EXPECT_CUDA(cudaStreamWaitEvent(other_, forked, 0));
    EXPECT_CUDA(log_.Append(stream, "a1"));
    EXPECT_CUDA(log_.Append(stream, "a2"));
    EXPECT_CUDA(log_.Append(other_, "b1"));
    EXPECT_CUDA(log_.Append(other_, "b2"));
    EXPECT_CUDA(cudaEventRecord(joined, other_));
    EXPECT_CUDA(cudaStreamWaitEvent(stream, joined, 0));
    EXPECT_CUDA(log_.Append(stream, "end"));
  }));
  std::set<std::vector<std::string>> orders;
  for (int i = 0; i < 100; ++i) {
    ASSERT_CUDA(cudaGraphLaunch(executable, stream_));
    ASSERT_CUDA(cudaStreamSynchronize(stream_));
    orders.insert(log_.Take());
  }
  EXPECT_THAT(orders, SizeIs(6));  // of two times two nodes, each pair in its order
  for (const auto& order : orders) {
    const auto place = [&](const char* name) {
      return std::find(order.begin(), order.end(), name) - order.begin();
    };
    EXPECT_EQ(order.size(), 6);
    EXPECT_EQ(place("start"), 0);
    EXPECT_LT(place("a1"), place("a2"));
    EXPECT_LT(place("b1"), place("b2"));
    EXPECT_EQ(place("end"), 5);
  }
  EXPECT_CUDA(cudaGraphExecDestroy(executable));
}

TEST_F(GraphTest, OnlyLibraryKernelsOfAChainKeepTheirOrder) {
  for (const bool chained : {true, false}) {
    KernelChain chain;
    std::string order;
    Event forked, joined;
    const auto append = [&](cudaStream_t stream, char name) {
      EXPECT_CUDA(EnqueueKernel(
          stream, "kernel", [&order, name] { return order += name, absl::OkStatus(); },
          chained ? &chain : nullptr));
    };
    const auto executable = Instantiate(Capture([&](cudaStream_t stream) {
      EXPECT_CUDA(cudaEventRecord(forked, stream));
      EXPECT_CUDA(cudaStreamWaitEvent(other_, forked, 0));
      append(stream, 'a');
      append(other_, 'b');
      EXPECT_CUDA(cudaEventRecord(joined, other_));
      EXPECT_CUDA(cudaStreamWaitEvent(stream, joined, 0));
    }));
    std::set<std::string> orders;
    for (int i = 0; i < 100; ++i) {
      order.clear();
      ASSERT_CUDA(cudaGraphLaunch(executable, stream_));
      ASSERT_CUDA(cudaStreamSynchronize(stream_));
      orders.insert(order);
    }
    const std::set<std::string> all = {"ab", "ba"}, kept = {"ab"};
    EXPECT_EQ(orders, chained ? kept : all);
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
  }
}

TEST_F(GraphTest, LaunchesOfOneExecutableDoNotOverlap) {
  const auto executable = Instantiate(Capture([&](cudaStream_t stream) {
    EXPECT_CUDA(log_.Append(stream, "begin"));
    EXPECT_CUDA(cudaLaunchHostFunc(
        stream, [](void*) { PauseForOthers(); }, nullptr));
    EXPECT_CUDA(log_.Append(stream, "end"));
  }));
  ASSERT_CUDA(cudaGraphLaunch(executable, stream_));
  ASSERT_CUDA(cudaGraphLaunch(executable, other_));
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_THAT(log_.Take(), ElementsAre("begin", "end", "begin", "end"));
  EXPECT_CUDA(cudaGraphExecDestroy(executable));
}

TEST_F(GraphTest, IsInItsStreamsOrder) {
  const auto executable =
      Instantiate(Capture([&](cudaStream_t s) { EXPECT_CUDA(log_.Append(s, "graph")); }));
  Gate gate(other_);
  ASSERT_CUDA(log_.Append(other_, "before"));
  ASSERT_CUDA(cudaGraphLaunch(executable, other_));
  ASSERT_CUDA(log_.Append(other_, "after"));
  gate.OpenLate();
  ASSERT_CUDA(cudaStreamSynchronize(other_));
  EXPECT_THAT(log_.Take(), ElementsAre("before", "graph", "after"));
  EXPECT_CUDA(cudaGraphExecDestroy(executable));
}

TEST_F(GraphTest, AGraphIsANodeOfAnother) {
  const auto inner =
      Instantiate(Capture([&](cudaStream_t s) { EXPECT_CUDA(log_.Append(s, "inner")); }));
  const auto outer = Instantiate(Capture([&](cudaStream_t s) {
    EXPECT_CUDA(cudaGraphLaunch(inner, s));
    EXPECT_CUDA(log_.Append(s, "outer"));
  }));
  EXPECT_CUDA(cudaGraphExecDestroy(inner));
  ASSERT_CUDA(cudaGraphLaunch(outer, stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_THAT(log_.Take(), ElementsAre("inner", "outer"));
  EXPECT_CUDA(cudaGraphExecDestroy(outer));
}

TEST_F(GraphTest, SpansDevices) {
  Ints first(64);
  ASSERT_CUDA(cudaSetDevice(1));
  Ints second(64);
  Stream stream;
  Event forked, joined;
  ASSERT_CUDA(cudaSetDevice(0));
  Event begin;
  const auto executable = Instantiate(Capture([&](cudaStream_t s) {
    EXPECT_CUDA(Add(first, 64, 1, s));
    EXPECT_CUDA(cudaEventRecord(begin, s));
    EXPECT_CUDA(cudaStreamWaitEvent(stream, begin, 0));
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_CUDA(Add(second, 64, 2, stream));
    EXPECT_CUDA(cudaEventRecord(joined, stream));
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_CUDA(cudaStreamWaitEvent(s, joined, 0));
  }));
  for (int i = 0; i < 3; ++i) ASSERT_CUDA(cudaGraphLaunch(executable, stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_THAT(first.Values(), Each(3));
  EXPECT_THAT(second.Values(), Each(6));
  EXPECT_CUDA(cudaGraphExecDestroy(executable));
}

TEST_F(GraphTest, TellsItsNodes) {
  Ints data(1);
  const cudaGraph_t graph = Capture([&](cudaStream_t stream) {
    EXPECT_CUDA(Add(data, 1, 1, stream));
    EXPECT_CUDA(cudaMemsetAsync(data, 0, 4, stream));
    EXPECT_CUDA(log_.Append(stream, "host"));
  });
  size_t count = 0;
  ASSERT_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  ASSERT_EQ(count, 3);
  cudaGraphNode_t nodes[4] = {};
  count = 4;
  ASSERT_CUDA(cudaGraphGetNodes(graph, nodes, &count));
  EXPECT_EQ(count, 3);
  EXPECT_EQ(nodes[3], nullptr);
  std::vector<cudaGraphNodeType> types;
  for (int i = 0; i < 3; ++i) {
    cudaGraphNodeType type = {};
    EXPECT_CUDA(cudaGraphNodeGetType(nodes[i], &type));
    types.push_back(type);
  }
  EXPECT_THAT(types,
              ElementsAre(cudaGraphNodeTypeKernel, cudaGraphNodeTypeMemset, cudaGraphNodeTypeHost));
  count = 4;
  ASSERT_CUDA(cudaGraphGetRootNodes(graph, nodes, &count));
  EXPECT_EQ(count, 1);
  EXPECT_CUDA(cudaGraphDestroy(graph));
}

}  // namespace
}  // namespace brigade::emulator
