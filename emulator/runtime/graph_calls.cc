// Graphs: what captures made, as programs that run.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <random>

#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {
namespace {

// An order that the edges allow. Kernels with a chain (library.h) keep theirs: those that wait for
// other ranks must be in the same order on all.
std::vector<size_t> OrderOf(const std::vector<CUgraphNode_st>& nodes, uint64_t seed) {
  std::vector<std::vector<size_t>> next(nodes.size());
  std::vector<size_t> missing(nodes.size(), 0);
  const auto add_edge = [&](size_t from, size_t to) {
    next[from].push_back(to);
    ++missing[to];
  };
  const CUgraphNode_st* last_chained = nullptr;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t earlier : nodes[i].after) add_edge(earlier, i);
    if (!nodes[i].work.is_chained) continue;
    if (last_chained != nullptr) add_edge(static_cast<size_t>(last_chained - nodes.data()), i);
    last_chained = &nodes[i];
  }
  std::vector<size_t> ready, order;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (missing[i] == 0) ready.push_back(i);
  }
  std::mt19937_64 random(seed);
  while (!ready.empty()) {
    const size_t chosen = seed == 0 ? 0 : random() % ready.size();
    const size_t node = ready[chosen];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(chosen));
    order.push_back(node);
    for (size_t later : next[node]) {
      if (--missing[later] == 0) ready.push_back(later);
    }
  }
  return order;
}

cudaError_t Instantiate(Call& call, cudaGraphExec_t* executable, cudaGraph_t handle) {
  const auto graph = call.Find(handle);
  if (graph == nullptr || executable == nullptr) return cudaErrorInvalidValue;
  auto made = std::make_shared<CUgraphExec_st>();
  made->device = graph->device;
  made->nodes = std::make_shared<const std::vector<CUgraphNode_st>>(graph->nodes);
  *executable = call.machine.executables.Add(std::move(made));
  return cudaSuccess;
}

// One after the other: nodes that wait for each other, as two ranks of a collective, never end.
void RunNodes(const std::vector<CUgraphNode_st>& nodes, uint64_t seed) {
  const Machine& machine = Machine::Get();
  for (size_t node : OrderOf(nodes, seed)) {
    machine.devices[static_cast<size_t>(nodes[node].device)]->Run(nodes[node].work);
  }
}

// At most *count of the chosen nodes, then null; with null `nodes`, how many there are.
cudaError_t GetNodes(const Call& call, cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count,
                     bool (*is_chosen)(const CUgraphNode_st&)) {
  const auto graph = call.Find(handle);
  if (graph == nullptr || count == nullptr) return cudaErrorInvalidValue;
  std::vector<cudaGraphNode_t> chosen;
  for (CUgraphNode_st& node : graph->nodes) {
    if (is_chosen(node)) chosen.push_back(&node);
  }
  if (nodes == nullptr) {
    *count = chosen.size();
    return cudaSuccess;
  }
  const size_t room = *count;
  *count = std::min(room, chosen.size());
  std::fill_n(std::copy_n(chosen.begin(), *count, nodes), room - *count, nullptr);
  return cudaSuccess;
}

cudaGraphNodeType TypeOf(Work::Kind kind) {
  switch (kind) {
    case Work::Kind::kNothing:
      return cudaGraphNodeTypeEmpty;
    case Work::Kind::kKernel:
    case Work::Kind::kLibraryKernel:
      return cudaGraphNodeTypeKernel;
    case Work::Kind::kCopy:
      return cudaGraphNodeTypeMemcpy;
    case Work::Kind::kFill:
      return cudaGraphNodeTypeMemset;
    case Work::Kind::kHost:
      return cudaGraphNodeTypeHost;
    case Work::Kind::kGraph:
      return cudaGraphNodeTypeGraph;
  }
  return cudaGraphNodeTypeCount;
}

}  // namespace
}  // namespace brigade::emulator

using namespace brigade::emulator;  // NOLINT: the functions are C's, outside of namespaces

extern "C" {

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return Api("cudaGraphInstantiate", Needs::kContext,
             [&](Call& call) { return Instantiate(call, executable, graph); });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  return Api("cudaGraphLaunch", Needs::kContext, [&](Call& call) {
    const auto executable = call.Find(handle);
    const auto stream = call.Find(stream_handle);
    if (executable == nullptr || stream == nullptr) return cudaErrorInvalidResourceHandle;
    const auto run = [nodes = executable->nodes, seed = call.seed()](Device&) {
      RunNodes(*nodes, seed);
      return cudaSuccess;
    };
    // Launches of one executable graph do not overlap.
    std::vector<CompletionPtr> after;
    if (executable->last != nullptr) after.push_back(executable->last);
    CompletionPtr done;
    const cudaError_t error =
        call.Submit(stream, {Work::Kind::kGraph, run}, &done, std::move(after));
    if (done != nullptr) executable->last = std::move(done);
    return error;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  return Api("cudaGraphDestroy", Needs::kNothing, [&](Call& call) {
    const auto graph = call.Find(handle);
    if (graph == nullptr) return cudaErrorInvalidValue;
    graph->nodes.clear();
    call.machine.graphs.Destroy(*graph);
    return cudaSuccess;
  });
}

// Launches that are on their way go on.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  return Api("cudaGraphExecDestroy", Needs::kNothing, [&](Call& call) {
    const auto executable = call.Find(handle);
    if (executable == nullptr) return cudaErrorInvalidValue;
    executable->nodes = nullptr;
    call.machine.executables.Destroy(*executable);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
  return Api("cudaGraphGetNodes", Needs::kNothing, [&](Call& call) {
    return GetNodes(call, handle, nodes, count, [](const CUgraphNode_st&) { return true; });
  });
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
  return Api("cudaGraphGetRootNodes", Needs::kNothing, [&](Call& call) {
    return GetNodes(call, handle, nodes, count,
                    [](const CUgraphNode_st& node) { return node.after.empty(); });
  });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return Api("cudaGraphNodeGetType", Needs::kNothing, [&](Call&) {
    if (node == nullptr || type == nullptr) return cudaErrorInvalidValue;
    *type = TypeOf(node->work.kind);
    return cudaSuccess;
  });
}

}  // extern "C"
