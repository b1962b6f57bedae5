#include "brigade/nn/embedding.h"

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/embedding_math.h"
#include "brigade/nn/enqueue.h"

namespace brigade::nn {

absl::Status Embedding(const TokenIds& ids, precision::DType dtype, int64_t width,
                       const void* tokens, const void* positions, void* x, device::Stream& stream,
                       const Segments& segments) {
  BRIGADE_RETURN_IF_ERROR(CheckVocabulary("embedding", ids));
  BRIGADE_RETURN_IF_ERROR(CheckSegments("embedding", segments, ids.context()));
  return WithType("embedding", dtype, [&](auto tag) {
    using T = decltype(tag);
    const EmbeddingRows<T> rows = {ids,   Typed<T>(tokens), Typed<T>(positions), Typed<T>(x),
                                   width, segments};
    return EnqueueRows({"embedding",
                        {ReadIds(ids), ReadPositions(segments, ids.batch(), ids.context()),
                         Read(rows.tokens, ids.vocabulary() * width),
                         Read(rows.positions, positions == nullptr ? 0 : ids.context() * width),
                         Write(rows.x, ids.rows() * width)}},
                       ids.rows(), rows, stream);
  });
}

namespace {

absl::Status CheckWorkspace(const TokenIds& ids, const Workspace& workspace) {
  if (workspace.rows() < ids.rows()) {
    return absl::InvalidArgumentError(absl::StrCat("embedding_backward: the workspace is for ",
                                                   workspace.rows(), " rows; the texts have ",
                                                   ids.rows()));
  }
  if (workspace.order().vocabulary < ids.vocabulary()) {
    return absl::InvalidArgumentError(
        absl::StrCat("embedding_backward: the workspace is for a vocabulary of ",
                     workspace.order().vocabulary, "; the tokens have one of ", ids.vocabulary()));
  }
  return absl::OkStatus();
}

absl::Status EnqueueOrder(const TokenIds& ids, const TokenOrder& order, const Workspace& workspace,
                          device::Stream& stream) {
  const device::Access accesses[] = {
      ReadIds(ids), device::Writes(workspace.memory().data(), workspace.memory().bytes())};
  const device::Operation operation = {"order_tokens", accesses};
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(LaunchOrderTokens(ids, order, workspace.sort_memory(),
                                                  static_cast<cudaStream_t>(cuda_stream)),
                                operation.name);
    });
  }
#endif
  return stream.Enqueue(operation, [ids, order](device::ThreadPool&) {
    OrderTokens(ids, order);
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status EmbeddingBackward(const TokenIds& ids, precision::DType dtype, int64_t width,
                               const void* dx, Gradient dtokens, Gradient dpositions,
                               const Workspace& workspace, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckVocabulary("embedding_backward", ids));
  BRIGADE_RETURN_IF_ERROR(CheckWorkspace(ids, workspace));
  return WithType("embedding_backward", dtype, [&](auto tag) {
    using T = decltype(tag);
    const int64_t size = ids.rows() * width, parts = MostTokenParts(ids.rows(), ids.vocabulary());
    BRIGADE_RETURN_IF_ERROR(
        CheckParts<TokenGradient<T>>("embedding_backward", width, parts, workspace, stream));
    if (dtokens.data != nullptr) {
      TokenOrder order = workspace.order();
      order.vocabulary = ids.vocabulary();
      BRIGADE_RETURN_IF_ERROR(EnqueueOrder(ids, order, workspace, stream));
      const TokenGradient<T> token = {order, Typed<T>(dx), Typed<T>(dtokens.data),
                                      dtokens.accumulate, width};
      BRIGADE_RETURN_IF_ERROR(
          EnqueueParts({"embedding_backward",
                        {device::Writes(workspace.memory().data(), workspace.memory().bytes()),
                         Read(token.dx, size), Write(token.dtokens, ids.vocabulary() * width)}},
                       ids.vocabulary(), width, token, parts, workspace, stream));
    }
    if (dpositions.data == nullptr) return absl::OkStatus();
    const PositionGradient<T> position = {Typed<T>(dx),          Typed<T>(dpositions.data),
                                          dpositions.accumulate, ids.batch(),
                                          ids.context(),         width};
    return EnqueueColumns(
        {"embedding_backward",
         {Read(position.dx, size), Write(position.dpositions, ids.context() * width)}},
        ids.context(), width, position, stream);
  });
}

}  // namespace brigade::nn
